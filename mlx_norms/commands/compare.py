"""Run a language model with MLX's norms and with ours, and compare speed, logits and tokens.

Both take turns at the same prompt of random tokens, through mlx_lm's own generation. The exit
status is 0 if they agree: if the logits differ by no more than rounding explains. It is 1 if not.
Tokens alone would not tell: many models with random weights repeat one token whatever is wrong, and
where two are about as likely rounding decides.
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

from .. import timing
from ..bench import machine
from . import CommandError, _output, _tiny_models, check_environment

_TINY = "tiny:"
_SIDES = {"stock": contextlib.nullcontext, "patched": mlx_norms.patched}
# Our norms and mx.fast's round at different places, which moves each result by an ulp or so. The
# logits then move about as far as they do when mx.fast's own results are moved by an ulp each: at
# most 1.5 times that over the tiny models in float32, 1.1 times in float16 and bfloat16.
_ROUNDING_MARGIN = 4


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
        "--rounds", metavar="N", type=_at_least(1), default=7, help="samples of each way (7)"
    )
    parser.add_argument("--plot", metavar="FILE", help="draw the speeds into an image file")


def run(args: argparse.Namespace) -> int:
    check_environment()
    _check_packages(args.plot)
    _output.check_image("--plot", args.plot)
    console = _output.console()
    model, vocabulary = load(args.model)
    check_memory(model, vocabulary, args.prompt, args.tokens, "--prompt", sides=3)
    prompt = mx.random.randint(0, vocabulary, (args.prompt,), key=mx.random.key(0))
    mx.eval(prompt)
    for line in _introduction(args):
        console.print(line, highlight=False)

    try:
        tokens = {"stock": generate(model, prompt, args.tokens).tokens}
    except Exception as error:  # mlx_lm's models raise what they like
        raise CommandError(
            f"MODEL {args.model!r} does not run here: {_output.line(error)}"
        ) from error
    with mlx_norms.patched():
        tokens["patched"] = generate(model, prompt, args.tokens).tokens
    drift, reports = measure_drift(model, prompt, tokens["stock"])
    rates = measure_rates(model, prompt, args.tokens, args.rounds)

    console.print(_rate_table(rates))
    console.print(timing.PAIRING, highlight=False)
    console.print(_report_table(reports))
    status = _verdict(console, drift, tokens)
    if args.plot:
        _plot(args, rates)
        console.print(f"The plot is in {args.plot}.", highlight=False)
    return status


@dataclass(frozen=True)
class Generation:
    """What mlx_lm generated, and how fast."""

    tokens: list[int]
    prefill: float  # tokens a second, up to the first token generated
    decode: float  # tokens a second, of those after it


@dataclass(frozen=True)
class Drift:
    """How far logits are from the stock ones, relative to the largest stock one."""

    prefill: float
    decode: float
    rounding: float  # how far they are, at most, if the stock norms round otherwise

    @property
    def explained(self) -> bool:
        # Written so that a NaN is not.
        bound = _ROUNDING_MARGIN * self.rounding
        return self.prefill <= bound and self.decode <= bound


def measure_drift(
    model: mlx.nn.Module, prompt: mx.array, tokens: list[int]
) -> tuple[Drift, list[mlx_norms.Report]]:
    """Compare the logits of the prompt, and of each of ``tokens`` after it.

    Returns:
        tuple: The :class:`Drift`, and the reports of the patched prefill and of a decode step.
    """
    reports: list[mlx_norms.Report] = []

    @contextlib.contextmanager
    def reported():
        with mlx_norms.patched():
            yield
            reports.append(mlx_norms.report())

    stock = _logits(model, prompt, tokens, contextlib.nullcontext)
    patched = _logits(model, prompt, tokens, reported)
    keys = map(mx.random.key, itertools.count())
    moved = _logits(model, prompt, tokens, lambda: _norms_an_ulp_off(keys))
    prefill, decode = map(relative_difference, stock, patched)
    rounding = max(map(relative_difference, stock, moved))
    return Drift(prefill, decode, rounding), reports[:2]


def relative_difference(stock: mx.array, other: mx.array) -> float:
    """The largest difference over the largest finite magnitude of the stock ones.

    Some models mask tokens with an infinity. It is no difference if both have it, and NaN if one.
    """
    stock, other = stock.astype(mx.float32), other.astype(mx.float32)
    largest = mx.max(mx.where(mx.isfinite(stock), mx.abs(stock), 0))
    difference = mx.where(stock == other, 0, mx.abs(stock - other))
    worst = mx.max(mx.where(mx.isinf(difference), mx.nan, difference))
    return mx.where(worst == 0, 0, worst / largest).item()


def measure_rates(
    model: mlx.nn.Module, prompt: mx.array, count: int, rounds: int
) -> dict[str, dict[str, timing.Samples]]:
    """Samples of tokens a second by phase and side."""
    from rich.progress import track

    runs: dict[str, list[Generation]] = {side: [] for side in _SIDES}
    progress = _output.console(stderr=True)
    for side in track(
        timing.turns(_SIDES, rounds),
        "measuring",
        total=len(_SIDES) * rounds,
        console=progress,
        disable=not progress.is_terminal,
    ):
        with _SIDES[side]():
            runs[side].append(generate(model, prompt, count))
    return {
        phase: {
            side: timing.Samples(tuple(getattr(run, phase) for run in runs[side]))
            for side in _SIDES
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

    parse.__name__ = "int"  # as argparse calls it in errors
    return parse


def _check_packages(plot: str | None) -> None:
    needed = {"mlx_lm": "mlx-lm", "rich": "rich"} | ({"matplotlib": "matplotlib"} if plot else {})
    missing = [package for module, package in needed.items() if not _importable(module)]
    if missing:
        option = " with --plot" if "matplotlib" in missing else ""
        raise CommandError(f"compare{option} needs packages: type  pip install {' '.join(missing)}")


def _importable(module: str) -> bool:
    try:
        __import__(module)
    except ImportError:
        return False
    return True


def load(name: str) -> tuple[mlx.nn.Module, int]:
    """The model and the number of tokens that it knows."""
    if name.startswith(_TINY):
        try:
            tiny = name.removeprefix(_TINY)
            return _tiny_models.build(tiny), _tiny_models.vocabulary(tiny)
        except ValueError as error:
            raise CommandError(f"MODEL {name!r}: {error}") from None
    import mlx_lm

    try:
        model, _ = mlx_lm.load(name)
    except Exception as error:  # of mlx_lm, transformers, huggingface_hub and what they call
        missing = "" if os.path.exists(name) else ", and there is no such path"
        raise CommandError(
            f"MODEL {name!r} cannot be loaded by mlx_lm{missing}: {_output.line(error)}"
        ) from error
    # Lazy: only the shape is asked for.
    return model, model(mx.array([[0]]), cache=new_cache(model)).shape[-1]


def check_memory(
    model: mlx.nn.Module, vocabulary: int, prompt: int, tokens: int, option: str, *, sides: int = 1
) -> None:
    """Refuse what MLX could not end well: without memory it crashes.

    What counts are the logits of all tokens, by each of ``sides``, and on the CPU, where attention
    is taken in steps, a layer's scores of the prompt.

    Raises:
        CommandError: If that takes more memory than there is.
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


def _introduction(args: argparse.Namespace) -> Iterator[str]:
    device = mx.default_device()
    facts = mx.device_info(device)
    chip = facts.get("device_name", facts.get("architecture", "unknown"))
    yield (
        f"{args.model} on the {device.type.name} ({chip}): {args.prompt} random tokens in, "
        f"{args.tokens} out, with mx.fast's norms (stock) and with ours (patched)."
    )
    if args.model.startswith(_TINY):
        yield (
            "Its weights are random: what it writes means nothing, and so small a model says "
            "little about the speed of a large one."
        )
    yield ""


def new_cache(model: mlx.nn.Module) -> list:
    from mlx_lm.models.cache import make_prompt_cache

    return make_prompt_cache(model)


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
    mx.synchronize(stream)  # mlx_lm has begun a token more than were asked for
    return Generation(
        tokens, len(prompt) / (times[1] - times[0]), (count - 1) / (times[-1] - times[1])
    )


def _logits(
    model: mlx.nn.Module,
    prompt: mx.array,
    tokens: list[int],
    around: Callable[[], contextlib.AbstractContextManager],
) -> tuple[mx.array, mx.array]:
    """The logits of the prompt and of ``tokens``, a call each within ``around()``."""
    cache = new_cache(model)
    outputs = []
    for part in (prompt, *(mx.array([token]) for token in tokens)):
        with around():
            outputs.append(model(part[None], cache=cache))
            mx.eval(outputs[-1])
    return outputs[0], mx.concatenate(outputs[1:], axis=1)


@contextlib.contextmanager
def _norms_an_ulp_off(keys: Iterator[mx.array]) -> Iterator[None]:
    """Moves each element that mx.fast's norms give by an ulp, up or down by a key a call."""

    def moved(norm):
        def call(*args, **kwargs):
            exact = norm(*args, **kwargs)
            signs = 2.0 * mx.random.bernoulli(0.5, exact.shape, next(keys)) - 1
            ulp = mx.finfo(exact.dtype).eps
            return (exact * (1 + ulp * signs.astype(mx.float32))).astype(exact.dtype)

        return call

    stock = {name: getattr(mx.fast, name) for name in ("rms_norm", "layer_norm")}
    for name, norm in stock.items():
        setattr(mx.fast, name, moved(norm))
    try:
        yield
    finally:
        for name, norm in stock.items():
            setattr(mx.fast, name, norm)


def _rate_table(rates: dict[str, dict[str, timing.Samples]]):
    from rich.table import Table

    table = Table(title="Tokens a second: median (quartiles)", title_justify="left")
    for heading in ("", *_SIDES, "patched / stock"):
        table.add_column(heading, justify="right" if heading else "left")
    for phase, by_side in rates.items():
        ratio = by_side["patched"].over(by_side["stock"])
        lower, upper = ratio.quartiles
        said = f"{ratio.text(3)} ({lower:.3f} to {upper:.3f})"
        table.add_row(phase, *(_spread(by_side[side]) for side in _SIDES), said)
    return table


def _spread(samples: timing.Samples) -> str:
    lower, upper = samples.quartiles
    places = 1 if samples.median < 100 else 0
    return f"{samples.median:.{places}f} ({lower:.{places}f} to {upper:.{places}f})"


def _report_table(reports: list[mlx_norms.Report]):
    from rich.table import Table

    table = Table(title="Calls of mx.fast's norms, patched", title_justify="left")
    for heading in ("", "prefill", "a decode step"):
        table.add_column(heading, justify="right" if heading else "left")
    for label in ("calls", "fused", "offsets", "passed_on"):
        counts = (getattr(report, label) for report in reports)
        table.add_row(label.replace("_", " "), *map(str, counts))
    table.add_section()
    for reason in dict.fromkeys(reason for report in reports for reason in report.reasons):
        table.add_row(reason, *(str(report.reasons.get(reason, 0)) for report in reports))
    return table


def _verdict(console, drift: Drift, tokens: dict[str, list[int]]) -> int:
    console.print(
        f"Largest difference of a logit, over the largest stock logit: prefill "
        f"{drift.prefill:.2e}, decode {drift.decode:.2e}",
        highlight=False,
    )
    console.print(
        f"The same with mx.fast's norms moved by an ulp: {drift.rounding:.2e} "
        f"({_ROUNDING_MARGIN} times that is put down to rounding)",
        highlight=False,
    )
    parting = first_parting(tokens["stock"], tokens["patched"])
    count = len(tokens["stock"])
    if parting is None:
        console.print(f"Tokens generated: all {count} the same.", highlight=False)
    else:
        console.print(
            f"Tokens generated: they part at number {parting + 1} of {count}.", highlight=False
        )
    good = drift.explained
    console.print("Stock and patched agree." if good else "Stock and patched DISAGREE.")
    return 0 if good else 1


def _plot(args: argparse.Namespace, rates: dict[str, dict[str, timing.Samples]]) -> None:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7, 4), layout="constrained")
    figure.suptitle(f"{args.model} on the {mx.default_device().type.name}: tokens a second")
    for axes, (phase, by_side) in zip(figure.subplots(1, len(rates)), rates.items(), strict=True):
        medians = [by_side[side].median for side in _SIDES]
        quartiles = [by_side[side].quartiles for side in _SIDES]
        whiskers = [
            [median - lower for median, (lower, _) in zip(medians, quartiles, strict=True)],
            [upper - median for median, (_, upper) in zip(medians, quartiles, strict=True)],
        ]
        axes.bar(list(_SIDES), medians, yerr=whiskers, capsize=6, color=["0.7", "tab:blue"])
        ratio = by_side["patched"].over(by_side["stock"])
        axes.set_title(f"{phase}, patched / stock {ratio.text(3)}")
    try:
        figure.savefig(args.plot)
    except (OSError, ValueError) as error:
        raise CommandError(f"--plot {args.plot} cannot be written: {_output.line(error)}") from None
