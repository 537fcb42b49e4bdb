"""A language model of mlx_lm: prefill and decode steps, stock against patched and projections.

MODEL is one of those below with random weights, by default a llama of 8B shapes, in bfloat16, 4 and
8 bits; or what compare takes, such as tiny:qwen3. Decode steps of several rows take so many tokens
of one sequence together, as in speculative decoding. Each step's tokens are chosen on the device
while the next step is being built, as in mlx_lm. The logits of each are compared bit by bit, given
the same tokens.

"host" is the time that the host's thread itself needs to build and encode a step; --kernels, in a
process of its own, as CUPTI slows what it watches, has the time in which at least one kernel runs.
Where the first is not well below the second, the host limits.
"""

from __future__ import annotations

import argparse
import functools
import statistics
import time
from collections.abc import Callable, Iterator

import mlx.core as mx

import mlx_norms
from harness import llama, models
from harness.suite import Case, Suite
from mlx_norms._measure import timing
from mlx_norms._measure.models import logits as logits_of
from mlx_norms.commands import CommandError, _sides, compare

CONTEXTS = _sides.CONTEXTS | {"fuse=False": functools.partial(mlx_norms.patched, fuse=False)}
SIDES = ("stock", "patched", "projections")
PREFILLS, STEPS = 4, 16  # in a sample


class Host:
    """A step's time on the CPU of the thread that builds and encodes it, the device idle before."""

    most, overlap = 1 << 62, False

    def __init__(self, step: Callable, context: Callable) -> None:
        self._step, self._context = step, context

    def seconds(self, count: int) -> float:
        """``count`` times the median of so many steps; waits take none of the CPU's time."""
        taken = []
        with self._context():
            for begin in self._step(count):
                mx.synchronize()
                start = time.thread_time()
                mx.async_eval(begin())
                taken.append(time.thread_time() - start)
            mx.synchronize()
        return count * statistics.median(taken)


class Kernels:
    """Steps for a GPU's own clock, which wait for their end."""

    output_bytes = 1

    def __init__(self, run: Callable[[int], None], context: Callable) -> None:
        self._run, self.context = run, context

    def prepare(self, count: int) -> int:
        return count

    def finish(self, count: int, *, alone: bool = False) -> None:
        self._run(count)


class Phase:
    """A prefill, or decode steps of some rows after it."""

    def __init__(self, model, prompt: mx.array, rows: int) -> None:
        self._model, self._prompt, self.rows = model, prompt, rows
        self.name = "prefill" if not rows else "decode" if rows == 1 else f"decode, {rows} rows"
        self.count = STEPS if rows else PREFILLS
        token, self._cache = models.prefill(model, prompt)
        self._tokens = mx.repeat(token, max(rows, 1))
        vocabulary = self.logits_of([]).shape[-1]
        self._given = mx.random.randint(0, vocabulary, (STEPS * rows,)).tolist()
        mx.eval(self._tokens)

    def run(self, count: int) -> None:
        if self.rows:
            models.decode(self._model, self._tokens, self._cache, count)
        else:
            for _ in range(count):
                models.prefill(self._model, self._prompt)

    def steps(self, count: int) -> Iterator[Callable]:
        """What begins each step, after the one before."""
        tokens = self._tokens

        def begin() -> mx.array:
            nonlocal tokens
            tokens = models.step(self._model, tokens, self._cache)
            return tokens

        for _ in range(count):
            yield begin
        models.trim(self._cache, count * tokens.size)

    def logits_of(self, tokens: list[int]) -> mx.array:
        if not tokens:
            return self._model(self._prompt[None], cache=models.new_cache(self._model))
        return logits_of(self._model, self._prompt, tokens, rows=self.rows)[1]

    def extras(self, side: str) -> dict[str, object]:
        """How far the side's logits are from stock's, and what became of its norms."""
        logits = {}
        for each in dict.fromkeys(("stock", side)):
            with CONTEXTS[each]():
                logits[each] = self.logits_of(self._given)
                mx.eval(logits[each])
        same = mx.array_equal(logits["stock"], logits[side]).item()
        found = dict(logits="bit-equal" if same else "differ")
        found["largest_difference"] = _sides.relative_difference(logits["stock"], logits[side])
        if side in ("stock", _sides.NULL):
            return found
        with CONTEXTS[side]():
            self.run(1)
            report = mlx_norms.report()
        counts = ("fused", "projections", "products")
        return found | {name: getattr(report, name) for name in counts}


def loaded(args: argparse.Namespace) -> Iterator[tuple[str, object, str, int]]:
    """The model in each of its formats, where it is from, and its vocabulary."""
    if args.model not in llama.MODELS:
        model, vocabulary = compare.load(args.model)
        compare.check_memory(model, vocabulary, args.prompt, STEPS, "--prompt", sides=2)
        yield "its own", model, args.model, vocabulary
        return
    shapes = llama.shapes_of(args.model, tiny=args.tiny)
    for name in args.formats.split(","):
        mx.random.seed(0)
        model, source = llama.build(shapes, llama.FORMATS[name])
        yield name, model, f"{args.model} of {source}", shapes.vocab_size
        mx.clear_cache()


def cases(args: argparse.Namespace) -> Iterator[Case]:
    sides = args.sides.split(",")
    if unknown := [
        side for side in ("stock", *sides) if side not in CONTEXTS or "stock" not in sides
    ]:
        raise CommandError(f"--sides: stock and some of {', '.join(CONTEXTS)}, not {unknown[0]!r}.")
    for name, model, source, vocabulary in loaded(args):
        prompt = mx.random.randint(0, vocabulary, (args.prompt,))
        mx.eval(prompt)
        for rows in (0, *map(int, args.rows.split(","))):
            about = dict(model=source, layers=len(model.layers), prompt=args.prompt)
            for how in ("kernels",) if args.kernels else ("wall", "host"):
                if rows or how == "wall":
                    yield case(name, model, prompt, rows, how, sides, about)


def case(name, model, prompt, rows: int, how: str, sides: list[str], about: dict) -> Case:
    phase = functools.cache(lambda: Phase(model, prompt, rows))

    def made() -> dict:
        of = {
            "wall": lambda context: timing.Runs(phase().run, context),
            "host": lambda context: Host(phase().steps, context),
            "kernels": lambda context: Kernels(phase().run, context),
        }
        return {side: of[how](CONTEXTS[side]) for side in sides}

    title = "prefill" if not rows else "decode" if rows == 1 else f"decode, {rows} rows"
    labels = dict(format=name, phase=title, rows=rows or prompt.size)
    extras = lambda side: phase().extras(side) | about  # noqa: E731
    count = STEPS if rows else PREFILLS
    return Case(labels, made, count=count, extras=extras, hows=(how,))


def options(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    of = f"of {', '.join(llama.MODELS)}, or as compare takes (default: %(default)s)"
    add("model", metavar="MODEL", nargs="?", default="llama-8B", help=of)
    add("--prompt", type=int, default=128, help="tokens to prefill (%(default)s)")
    add("--rows", default="1,4", help="numbers of rows of a decode step (%(default)s)")
    add("--formats", default=",".join(llama.FORMATS), help="of %(default)s, of random weights")
    add("--sides", default=",".join(SIDES), help=f"of {', '.join(CONTEXTS)} (%(default)s)")
    add("--kernels", action="store_true", help="by a GPU's clock alone")


EXTRAS = ("logits", "largest_difference", "fused", "projections", "products", "model", "layers")
SUITE = Suite(
    __doc__,
    ("format", "phase", "rows"),
    cases,
    ("wall", "host", "kernels"),
    base="stock",
    device="default",
    options=options,
    extras=(*EXTRAS, "prompt"),
)
