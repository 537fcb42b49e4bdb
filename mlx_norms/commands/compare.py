"""The command ``compare``.

The sides take turns at the same prompt of random tokens, in mlx_lm's own generation. The exit
status is 0 if they agree, that is, if the logits differ by no more than rounding explains, and 1 if
not. Tokens alone would not show it: many models with random weights repeat one token whatever is
wrong, and if two tokens are about equally likely, rounding decides.
"""

from __future__ import annotations

import argparse
import contextlib
import itertools
import os
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import mlx.core as mx
import mlx.nn
from mlx.utils import tree_flatten

import mlx_norms

from .._measure import machine, timing
from .._measure.models import logits, new_cache
from . import (
    CommandError,
    _compare_tables,
    _json,
    _output,
    _sides,
    _tiny_models,
    check_environment,
)

SUMMARY = (
    "Run a language model with MLX's norms and with ours, and compare speed, logits and tokens."
)

_TINY = "tiny:"
# Our norms and mx.fast's round at different points, which changes each result by about an ulp. The
# logits then change about as much as when mx.fast's own results are changed by an ulp each: at most
# 1.5 times that over the tiny models in float32, 1.1 times in float16 and bfloat16. With
# projections, where matmuls are changed too, it was at most 1.3 times on the simulated Metal device
# over a third of the tiny models, and over 35 of them in 4 bits 1.9 times in float32 and 2.8 times
# in bfloat16.
_ROUNDING_MARGIN = 4
_PROJECTED_ROWS = 8  # the most rows that projections compute together with their norm


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "model",
        metavar="MODEL",
        help="a path or repository that mlx_lm.load can load, or tiny:NAME, a small model of an "
        "architecture of mlx_lm with random weights, such as tiny:llama",
    )
    parser.add_argument(
        "--prompt", metavar="N", type=_at_least(1), default=128, help="tokens to prefill (128)"
    )
    parser.add_argument(
        "--tokens", metavar="N", type=_at_least(2), default=64, help="tokens to generate (64)"
    )
    parser.add_argument(
        "--rounds",
        metavar="N",
        type=_at_least(timing.ROUNDS),
        default=timing.ROUNDS,
        help=f"samples of each way ({timing.ROUNDS}, the least)",
    )
    _sides.add_options(parser)
    parser.add_argument("--plot", metavar="FILE", help="draw the speeds into an image file")
    _json.add_option(parser)


def run(args: argparse.Namespace) -> int:
    check_environment()
    _check_packages(args.plot)
    _output.check_image("--plot", args.plot)
    console = _output.console()
    sides = _sides.chosen(args)
    model, vocabulary = load(args.model)
    check_memory(model, vocabulary, args.prompt, args.tokens, "--prompt", sides=3)
    prompt = mx.random.randint(0, vocabulary, (args.prompt,), key=mx.random.key(0))
    mx.eval(prompt)

    tokens, findings = {}, {}
    for side in sides:
        with _output.working(f"{side}: tokens and logits"):
            tokens[side] = _first_tokens(args, model, prompt, side)
            if side != "stock":
                drift, reports = measure_drift(model, prompt, tokens["stock"], side)
                parting = first_parting(tokens["stock"], tokens[side])
                findings[side] = Finding(drift, reports, parting)
    rates = measure_rates(model, prompt, args.tokens, args.rounds, sides)

    ratios = {
        side: _compare_tables.over_stock(rates, side, finding.reports)
        for side, finding in findings.items()
    }
    verdicts = [_verdict(side, finding, ratios[side]) for side, finding in findings.items()]
    for verdict in verdicts:
        console.print(verdict, highlight=False, soft_wrap=True)
    for line in _introduction(args, sides):
        console.print(line, highlight=False)
    console.print(_compare_tables.rate_table(rates, ratios))
    console.print(timing.PAIRING, highlight=False)
    for side, finding in findings.items():
        if finding.reports:
            console.print(_compare_tables.report_table(side, finding.reports))
    for side, finding in findings.items():
        for line in _details(side, finding, args.tokens, len(findings) > 1):
            console.print(line, highlight=False)
    good = all(finding.drift.explained for finding in findings.values())
    args.figures |= {"verdict": {"agrees": good, "text": verdicts}}
    args.figures |= _figures(args, findings, rates, ratios)
    if args.plot:
        _compare_tables.plot(args.plot, args.model, rates, ratios)
        console.print(f"The plot is in {args.plot}.", highlight=False)
    return 0 if good else 1


def _first_tokens(
    args: argparse.Namespace, model: mlx.nn.Module, prompt: mx.array, side: str
) -> list[int]:
    try:
        with _sides.context(side):
            return generate(model, prompt, args.tokens).tokens
    except Exception as error:  # mlx_lm's models may raise anything
        if side != "stock":
            raise
        raise CommandError(
            f"MODEL {args.model!r} does not run here: {_output.line(error)}"
        ) from error


@dataclass(frozen=True)
class Generation:
    """The tokens that mlx_lm generated, and its speed."""

    tokens: list[int]
    prefill: float  # tokens per second, up to the first generated token
    decode: float  # tokens per second, after the first generated token


@dataclass(frozen=True)
class Drift:
    """The difference of logits from the stock ones, relative to the largest stock one."""

    prefill: float
    decode: float
    rounding: float  # how large it is, at most, if only the rounding of the norms differs

    @property
    def explained(self) -> bool:
        # Written so that a NaN is not close.
        bound = _ROUNDING_MARGIN * self.rounding
        return self.prefill <= bound and self.decode <= bound


@dataclass(frozen=True)
class Finding:
    """What was found about a side besides its speed.

    Attributes:
        reports: The reports of the prefill and of a decode step; none of stock again.
        parting: The index of the first token that differs from stock's, None if none does.
    """

    drift: Drift
    reports: list[mlx_norms.Report]
    parting: int | None


def measure_drift(
    model: mlx.nn.Module, prompt: mx.array, tokens: list[int], side: str = "patched"
) -> tuple[Drift, list[mlx_norms.Report]]:
    """Compare the logits of the prompt, and of each of ``tokens`` after it, with stock's.

    Returns:
        tuple: The :class:`Drift`, and the reports of the side's prefill and of a decode step.
    """
    reports: list[mlx_norms.Report] = []

    @contextlib.contextmanager
    def reported():
        with _sides.context(side):
            yield
            if side != _sides.NULL:
                reports.append(mlx_norms.report())

    stock = logits(model, prompt, tokens, contextlib.nullcontext)
    patched = logits(model, prompt, tokens, reported)
    keys = map(mx.random.key, itertools.count())
    products = side == "projections"
    moved = logits(model, prompt, tokens, lambda: _norms_an_ulp_off(keys, products=products))
    prefill, decode = map(_sides.relative_difference, stock, patched)
    rounding = max(map(_sides.relative_difference, stock, moved))
    return Drift(prefill, decode, rounding), reports[:2]


def measure_rates(
    model: mlx.nn.Module,
    prompt: mx.array,
    count: int,
    rounds: int,
    sides: tuple[str, ...] = ("stock", "patched"),
) -> _compare_tables.Rates:
    """Samples of tokens per second, by phase and side."""
    from rich.progress import track

    runs: dict[str, list[Generation]] = {side: [] for side in sides}
    progress = _output.console(stderr=True)
    for side in track(
        timing.turns(sides, rounds),
        "measuring",
        total=len(sides) * rounds,
        console=progress,
        disable=not progress.is_terminal,
    ):
        with _sides.context(side):
            runs[side].append(generate(model, prompt, count))
    return {
        phase: {
            side: timing.Samples(tuple(getattr(run, phase) for run in runs[side])) for side in sides
        }
        for phase in ("prefill", "decode")
    }


def first_parting(stock: list[int], patched: list[int]) -> int | None:
    """The index of the first token that differs, None if all are the same."""
    pairs = enumerate(zip(stock, patched, strict=True))
    return next((index for index, (a, b) in pairs if a != b), None)


def _at_least(least: int) -> Callable[[str], int]:
    def parse(text: str) -> int:
        if int(text) < least:
            raise argparse.ArgumentTypeError(f"must be at least {least}, got {text}")
        return int(text)

    parse.__name__ = "int"  # the name that argparse prints in errors
    return parse


def _check_packages(plot: str | None) -> None:
    needed = {"mlx_lm": "mlx-lm", "rich": "rich"} | ({"matplotlib": "matplotlib"} if plot else {})
    missing = [package for module, package in needed.items() if not importable(module)]
    if missing:
        option = " with --plot" if "matplotlib" in missing else ""
        raise CommandError(f"compare{option} needs packages: type  pip install {' '.join(missing)}")


def importable(module: str) -> bool:
    try:
        __import__(module)
    except ImportError:
        return False
    return True


def load(name: str) -> tuple[mlx.nn.Module, int]:
    """The model and its vocabulary size."""
    if name.startswith(_TINY):
        try:
            tiny = name.removeprefix(_TINY)
            return _tiny_models.build(tiny), _tiny_models.vocabulary(tiny)
        except ValueError as error:
            raise CommandError(f"MODEL {name!r}: {error}") from None
    import mlx_lm

    try:
        # A download shows its own progress.
        with (
            _output.working(f"loading {name}") if os.path.exists(name) else contextlib.nullcontext()
        ):
            model, _ = mlx_lm.load(name)
    except Exception as error:  # from mlx_lm, transformers, huggingface_hub or what they call
        missing = "" if os.path.exists(name) else ", and there is no such path"
        raise CommandError(
            f"MODEL {name!r} cannot be loaded by mlx_lm{missing}: {_output.line(error)}"
        ) from error
    # Not evaluated: only the shape is needed.
    return model, model(mx.array([[0]]), cache=new_cache(model)).shape[-1]


def check_memory(
    model: mlx.nn.Module, vocabulary: int, prompt: int, tokens: int, option: str, *, sides: int = 1
) -> None:
    """Refuse models that do not fit into memory, since MLX would crash.

    This counts the logits of all tokens, for each of ``sides``, and on the CPU, where attention is
    a chain of ops, the prompt's attention scores of a layer.

    Raises:
        CommandError: If these need more memory than is available.
    """
    floats = (a for _, a in tree_flatten(model.parameters()) if mx.issubdtype(a.dtype, mx.floating))
    size = next(floats, mx.zeros(0)).dtype.size
    needed = sides * (prompt + tokens) * vocabulary * size
    if mx.default_device() == mx.cpu:
        heads = getattr(getattr(model, "args", None), "num_attention_heads", 0)
        needed += heads * prompt**2 * size
    if needed > (there := machine.memory_bytes()):
        raise CommandError(
            f"{option} {prompt} and --tokens {tokens} take at least {machine.gib(needed)}, and "
            f"there are {machine.gib(there)}: ask for fewer."
        )


def _introduction(args: argparse.Namespace, sides: tuple[str, ...]) -> Iterator[str]:
    ours = " and with ours (patched)" + ", and with projections computed with them" * (
        "projections" in sides
    )
    device = f"{mx.default_device().type.name} ({machine.chip()})"
    yield (
        f"{args.model} on the {device}: {args.prompt} random tokens in, {args.tokens} out, with "
        f"mx.fast's norms (stock){', twice' if args.null else ours}."
    )
    if note := _sides.note(args):
        yield note
    if args.model.startswith(_TINY):
        yield (
            "Its weights are random: what it writes means nothing, and so small a model says "
            "little about the speed of a large one."
        )
    yield ""


def generate(model: mlx.nn.Module, prompt: mx.array, count: int) -> Generation:
    from mlx_lm.generate import generate_step

    stream = mx.default_stream(mx.default_device())
    tokens = []
    times = [time.perf_counter()]
    for token, _ in generate_step(
        prompt, model, max_tokens=count, prompt_cache=new_cache(model), stream=stream
    ):
        tokens.append(token)
        times.append(time.perf_counter())
    mx.synchronize(stream)  # mlx_lm has started one token more than requested
    return Generation(
        tokens, len(prompt) / (times[1] - times[0]), (count - 1) / (times[-1] - times[1])
    )


@contextlib.contextmanager
def _norms_an_ulp_off(keys: Iterator[mx.array], *, products: bool = False) -> Iterator[None]:
    """Changes each element of mx.fast's norms by an ulp, up or down at random, one key per call.

    With ``products``, it also changes the results of linear layers that read such a norm of few
    rows: projections compute these together with the norm, in another order of summation.
    """
    normed: list[mx.array] = []

    def move(exact: mx.array, ulp: float) -> mx.array:
        signs = 2.0 * mx.random.bernoulli(0.5, exact.shape, next(keys)) - 1
        return (exact * (1 + ulp * signs.astype(mx.float32))).astype(exact.dtype)

    def moved_norm(norm):
        def call(*args, **kwargs):
            exact = norm(*args, **kwargs)
            moved = move(exact, mx.finfo(exact.dtype).eps)
            if products and moved.size <= _PROJECTED_ROWS * moved.shape[-1]:
                normed.append(moved)
            return moved

        return call

    def moved_product(product):
        def call(layer, x):
            exact = product(layer, x)
            takes_norm = any(x is each for each in normed)
            return move(exact, _ulp_of_product(x, "scales" in layer)) if takes_norm else exact

        return call

    places = [(mx.fast, name, moved_norm) for name in ("rms_norm", "layer_norm")]
    if products:
        places += [(layer, name, moved_product) for layer, name in _LINEAR]
    stock = [(owner, name, getattr(owner, name)) for owner, name, _ in places]
    for owner, name, moved in places:
        setattr(owner, name, moved(getattr(owner, name)))
    try:
        yield
    finally:
        for owner, name, function in stock:
            setattr(owner, name, function)


_LINEAR = [
    (mlx.nn.Linear, "__call__"),
    (mlx.nn.QuantizedLinear, "__call__"),
    (mlx.nn.Embedding, "as_linear"),
    (mlx.nn.QuantizedEmbedding, "as_linear"),
]


def _ulp_of_product(x: mx.array, quantized: bool) -> float:
    """The relative change of a matmul with ``x`` if it is summed in another order."""
    eps = mx.finfo(x.dtype).eps
    if x.dtype != mx.float32:
        return eps  # the result is rounded to this dtype, after sums in float32
    if quantized:
        # A weight is scale * q plus its bias, each about four times as large as the weight.
        return 4 * eps
    several = x.size > x.shape[-1]
    if several and mx.default_device() != mx.cpu and _tf32():
        return 2.0**-10  # TF32's, which ours does not use
    return eps


def _tf32() -> bool:
    """Whether MLX uses TF32 for float32 where it can, as it does by default."""
    return os.environ.get("MLX_ENABLE_TF32", "1") != "0"


def _verdict(side: str, finding: Finding, over_stock: dict[str, timing.Ratio]) -> str:
    """A side's speed, and whether it agrees, in one line."""
    pace = _sides.pace(side, over_stock)
    return f"{pace}; the logits {'agree' if finding.drift.explained else 'DISAGREE'}."


def _details(side: str, finding: Finding, count: int, several: bool) -> Iterator[str]:
    """The figures behind the verdict; ``count`` tokens were generated."""
    drift, of_side = finding.drift, f", {side}" * several
    yield (
        f"Largest difference of a logit{of_side}, over the largest stock logit: prefill "
        f"{drift.prefill:.2e}, decode {drift.decode:.2e}"
    )
    products = " and the products that take them" * (side == "projections")
    yield (
        f"The same with mx.fast's norms{products} moved by an ulp: {drift.rounding:.2e} "
        f"({_ROUNDING_MARGIN} times that is put down to rounding)"
    )
    same = finding.parting is None
    parted = (
        f"all {count} the same" if same else f"they part at number {finding.parting + 1} of {count}"
    )
    yield f"Tokens generated{of_side}: {parted}."
    yield f"Stock and {side} {'agree' if drift.explained else 'DISAGREE'}."


def _figures(
    args: argparse.Namespace,
    findings: dict[str, Finding],
    rates: _compare_tables.Rates,
    ratios: _compare_tables.Ratios,
) -> dict:
    """The printed figures but for the verdict, for ``--json``."""
    sides = {
        side: {"tokens_a_second": {phase: by_side[side] for phase, by_side in rates.items()}}
        for side in rates["decode"]
    }
    for side, finding in findings.items():
        drift = finding.drift
        sides[side] |= {
            "over_stock": ratios[side],
            "largest_difference": {"prefill": drift.prefill, "decode": drift.decode},
            "of_an_ulp": drift.rounding,
            "explained_by_rounding": _ROUNDING_MARGIN * drift.rounding,
            "agrees": drift.explained,
            "first_other_token": None if finding.parting is None else finding.parting + 1,
            "norms": {phase: counts(report) for phase, report in zip(rates, finding.reports)},
        }
    return {
        "model": args.model,
        "device": {"type": mx.default_device().type.name, "chip": machine.chip()},
        "prompt": args.prompt,
        "tokens": args.tokens,
        "sides": sides,
    }


def counts(report: mlx_norms.Report) -> dict:
    """The counts of a report, for ``--json``."""
    names = ("calls", "fused", "offsets", "passed_on", "projections", "reasons")
    return {name: getattr(report, name) for name in names}
