"""A model's prefill and decode: stock, patched and with projections."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import mlx.core as mx
import mlx.nn
from mlx.utils import tree_flatten

import mlx_norms
from harness import models
from mlx_norms._measure import timing
from mlx_norms.commands import _output, _sides, compare

from . import tracing

COLUMNS = ["section", "model", "prompt", "tokens", "phase", "side", "ms", "ms_lower", "ms_upper"]
COLUMNS += ["tokens_a_second", "gbps", "of_copy", "stock_over_patched", "ratio_lower"]
COLUMNS += ["ratio_upper", "fused", "calls", "rounds"]
_OF_PROJECTIONS = ["stock_over_projections", "projections"]


@dataclass(frozen=True)
class Line:
    """One phase of one side, for one prompt.

    Attributes:
        prompt: The number of its tokens.
        milliseconds: For the whole prefill, or per decoded token.
        weights: Bytes of the model's weights, which a decode step of a dense model reads once.
        ratio: Stock's time over the side's, round by round; for stock itself, over patched's.
        report: The outcomes of the norms in the phase; for stock itself, those of patched.
    """

    prompt: int
    phase: str
    side: str
    milliseconds: timing.Samples
    weights: int
    copy: float
    ratio: timing.Ratio
    report: mlx_norms.Report

    @property
    def tokens_a_second(self) -> float:
        tokens = self.prompt if self.phase == "prefill" else 1
        return 1e3 * tokens / self.milliseconds.median

    @property
    def rate(self) -> float | None:
        """Bytes of weights per second, when decoding."""
        if self.phase == "prefill":
            return None
        return 1e3 * self.weights / self.milliseconds.median

    def values(self, model: str, tokens: int) -> dict[str, object]:
        """The values by the names in :func:`columns`."""
        lower, upper = self.milliseconds.interval
        projected = self.side == "projections"
        ratios = ("" if projected else self.ratio.median, *self.ratio.interval)
        values = ("model", model, self.prompt, tokens, self.phase, self.side)
        values += (self.milliseconds.median, lower, upper, self.tokens_a_second)
        values += (self.rate / 1e9, self.rate / self.copy) if self.rate else ("", "")
        counted = self.side != "stock"
        values += (*ratios, *((self.report.fused, self.report.calls) if counted else ("", "")))
        found = dict(zip(COLUMNS, (*values, len(self.milliseconds.values)), strict=True))
        if projected:
            found |= zip(_OF_PROJECTIONS, (self.ratio.median, self.report.projections), strict=True)
        return found

    def figures(self) -> dict[str, object]:
        """The values for ``--json``."""
        about = {"prompt": self.prompt, "phase": self.phase, "side": self.side}
        about |= {"milliseconds": self.milliseconds, "tokens_a_second": self.tokens_a_second}
        about |= {
            "gbps": self.rate and self.rate / 1e9,
            "of_copy": self.rate and self.rate / self.copy,
        }
        stock = self.side == "stock"
        about["times_as_fast_as_stock"] = None if stock else self.ratio
        return about | {"norms": None if stock else compare.counts(self.report)}


def columns(sides: tuple[str, ...]) -> list[str]:
    """The columns of a CSV file with lines of these sides."""
    return COLUMNS + _OF_PROJECTIONS * ("projections" in sides)


def lines(
    model: mlx.nn.Module,
    prompt: mx.array,
    tokens: int,
    rounds: int,
    copy: float,
    sides: tuple[str, ...] = ("stock", "patched"),
) -> Iterator[Line]:
    """Measure both phases of the sides, which take turns in mlx_lm's own generation."""
    with _output.working(f"compiling, after {prompt.size} tokens"):
        steps(model, prompt, sides)
    rates = compare.measure_rates(model, prompt, tokens, rounds, sides)
    reports = {side: _reports(model, prompt, side) for side in sides if side != "stock"}
    reports["stock"] = reports["patched"]
    weights = sum(array.nbytes for _, array in tree_flatten(model.parameters()))
    for phase, by_side in rates.items():
        length = prompt.size if phase == "prefill" else 1
        milliseconds = {
            side: timing.Samples(tuple(1e3 * length / rate for rate in samples.values))
            for side, samples in by_side.items()
        }
        for side, samples in milliseconds.items():
            other = milliseconds["patched"] if side == "stock" else samples
            report = reports[side][phase]
            ratio = _sides.marked(milliseconds["stock"].over(other), report)
            about = (samples, weights, copy, ratio, report)
            yield Line(prompt.size, phase, side, *about)


def _reports(model: mlx.nn.Module, prompt: mx.array, side: str) -> dict[str, mlx_norms.Report]:
    cache = models.new_cache(model)
    found = {}
    for phase, part in {"prefill": prompt, "decode": prompt[:1]}.items():
        with _sides.context(side):
            mx.eval(model(part[None], cache=cache))
            found[phase] = mlx_norms.report()
    return found


def traces(
    model: mlx.nn.Module, prompt: mx.array, sides: tuple[str, ...]
) -> dict[str, tracing.Trace]:
    """The host's cost of each of the first decode steps, by side."""
    found = {}
    for side in sides:
        token, cache = models.prefill(model, prompt)

        def start():
            nonlocal token
            token = mx.argmax(model(token[None], cache=cache)[:, -1], axis=-1)  # noqa: B023
            mx.async_eval(token)
            return token

        with _sides.context(side):
            found[side] = tracing.trace(start, mx.synchronize)
    return found


def steps(model: mlx.nn.Module, prompt: mx.array, sides: tuple[str, ...]) -> None:
    """Run a prefill and a decode step of each side."""
    for side in sides:
        with _sides.context(side):
            compare.generate(model, prompt, 2)


def fused(line: Line) -> str:
    """The outcomes of the norms, for the user."""
    report = line.report
    said = f"{line.phase} {line.prompt}, {line.side}: {report.fused} of {report.calls} norms fused"
    if line.side == "projections":
        said += f", {report.projections} computed with the products that take them"
    return f"{said}."


def verdicts(found: list[Line]) -> Iterator[str]:
    """How fast each side of the verdict is, one line per side and prompt."""
    ratios: dict[tuple[str, int], dict[str, timing.Ratio]] = {}
    judged = _sides.judged(dict.fromkeys(line.side for line in found))
    for line in found:
        if line.side in judged:
            ratios.setdefault((line.side, line.prompt), {})[line.phase] = line.ratio
    several = len({prompt for _, prompt in ratios}) > 1
    for (side, prompt), by_phase in ratios.items():
        yield f"{_sides.pace(side, by_phase)}{f' (prompt of {prompt} tokens)' * several}."


def table(found: list[Line], title: str):
    """The lines as a table for the terminal."""
    from harness.tables import number, spread, table

    headings = ["ms", "quartiles", "tokens/s", "GB/s of\nweights"]
    versus = (
        "stock /\nside" if any(line.side == "projections" for line in found) else "stock /\npatched"
    )
    headings += ["of\ncopy", versus]
    lines = table(title, ("phase,\nprompt", "side"), headings, lines=False)
    for line in found:
        stock = line.side == "stock"
        lines.add_row(
            *(f"{line.phase} {line.prompt}", line.side, number(line.milliseconds.median)),
            *(spread(line.milliseconds), number(line.tokens_a_second)),
            *((number(line.rate / 1e9), f"{line.rate / line.copy:.1%}") if line.rate else ("", "")),
            "" if stock else f"{line.ratio.text(3)}\n{spread(line.ratio)}",
        )
    return lines


def draw(path: str, found: list[Line], title: str) -> None:
    """Plot the time of a prefill and of a decode step against the prompt's length.

    Raises:
        OSError, ValueError: If matplotlib cannot write the file.
    """
    from matplotlib.figure import Figure

    from harness.plots import ticks

    figure = Figure(figsize=(10, 4.5), dpi=128, layout="constrained")
    sides = dict.fromkeys(line.side for line in found)
    figure.suptitle(title)
    handles = {}
    for phase, axes in zip(("prefill", "decode"), figure.subplots(1, 2), strict=True):
        for side in sides:
            of_side = [line for line in found if (line.phase, line.side) == (phase, side)]
            points = [(line.prompt, line.milliseconds.median) for line in of_side]
            (handles[side],) = axes.plot(*zip(*points, strict=True), marker="o", label=side)
        if phase == "decode" and of_side:
            bound = 1e3 * of_side[0].weights / of_side[0].copy
            label = "weights at a copy's pace"
            handles[label] = axes.axhline(bound, color="black", label=label)
        axes.set(title=phase, xlabel="tokens of the prompt", ylabel="ms")
        ticks(axes, (line.prompt for line in found))
        axes.set_ylim(bottom=0)
        axes.grid(alpha=0.3)
    figure.legend(handles=list(handles.values()), loc="outside lower center", ncols=len(handles))
    figure.savefig(path)
