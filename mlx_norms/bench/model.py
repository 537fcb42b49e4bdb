"""A model's prefill and decode, stock against patched."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass

import mlx.core as mx
import mlx.nn
from mlx.utils import tree_flatten

import mlx_norms
from mlx_norms import timing
from mlx_norms.commands import compare

from . import tracing

SIDES = {"stock": contextlib.nullcontext, "patched": mlx_norms.patched}
COLUMNS = ["section", "model", "prompt", "tokens", "phase", "side", "ms", "ms_lower", "ms_upper"]
COLUMNS += ["tokens_a_second", "gbps", "of_copy", "stock_over_patched", "ratio_lower"]
COLUMNS += ["ratio_upper", "fused", "calls", "rounds"]


@dataclass(frozen=True)
class Line:
    """A phase of one side after one prompt.

    Attributes:
        prompt: Tokens of it.
        milliseconds: Of the whole prefill, or of a token decoded.
        weights: Bytes of the model's weights, which a decode step reads once if it is dense.
        ratio: stock's time over patched's, round by round.
        report: What became of the norms in the phase.
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
        """Bytes of weights a second, in decoding."""
        if self.phase == "prefill":
            return None
        return 1e3 * self.weights / self.milliseconds.median

    def values(self, model: str, tokens: int) -> dict[str, object]:
        """By the names of COLUMNS."""
        lower, upper = self.milliseconds.quartiles
        ratios = (self.ratio.median, *self.ratio.quartiles)
        values = ("model", model, self.prompt, tokens, self.phase, self.side)
        values += (self.milliseconds.median, lower, upper, self.tokens_a_second)
        values += (self.rate / 1e9, self.rate / self.copy) if self.rate else ("", "")
        patched = self.side == "patched"
        values += (*ratios, *((self.report.fused, self.report.calls) if patched else ("", "")))
        return dict(zip(COLUMNS, (*values, len(self.milliseconds.values)), strict=True))


def lines(
    model: mlx.nn.Module, prompt: mx.array, tokens: int, rounds: int, copy: float
) -> Iterator[Line]:
    """Measure both phases of both sides, which take turns at mlx_lm's own generation."""
    for context in SIDES.values():  # compiles
        with context():
            compare.generate(model, prompt, 2)
    rates = compare.measure_rates(model, prompt, tokens, rounds)
    reports = _reports(model, prompt)
    weights = sum(array.nbytes for _, array in tree_flatten(model.parameters()))
    for phase, by_side in rates.items():
        length = prompt.size if phase == "prefill" else 1
        milliseconds = {
            side: timing.Samples(tuple(1e3 * length / rate for rate in samples.values))
            for side, samples in by_side.items()
        }
        ratio = milliseconds["stock"].over(milliseconds["patched"])
        for side, samples in milliseconds.items():
            about = (samples, weights, copy, ratio, reports[phase])
            yield Line(prompt.size, phase, side, *about)


def _reports(model: mlx.nn.Module, prompt: mx.array) -> dict[str, mlx_norms.Report]:
    cache = compare.new_cache(model)
    found = {}
    for phase, part in {"prefill": prompt, "decode": prompt[:1]}.items():
        with mlx_norms.patched():
            mx.eval(model(part[None], cache=cache))
            found[phase] = mlx_norms.report()
    return found


def traces(model: mlx.nn.Module, prompt: mx.array) -> dict[str, tracing.Trace]:
    """The host's cost of each of the first decode steps of each side."""
    found = {}
    for side, context in SIDES.items():
        cache = compare.new_cache(model)
        token = mx.argmax(model(prompt[None], cache=cache)[:, -1], axis=-1)
        mx.eval(token)

        def start():
            nonlocal token
            token = mx.argmax(model(token[None], cache=cache)[:, -1], axis=-1)  # noqa: B023
            mx.async_eval(token)
            return token

        with context():
            found[side] = tracing.trace(start, mx.synchronize)
    return found


def steps(model: mlx.nn.Module, prompt: mx.array) -> None:
    """A prefill and a decode step of each side."""
    for context in SIDES.values():
        with context():
            compare.generate(model, prompt, 2)


def fused(line: Line) -> str:
    """What became of the norms, for the user."""
    report = line.report
    return f"{line.phase} {line.prompt}, patched: {report.fused} of {report.calls} norms fused."


def table(found: list[Line], title: str):
    """The lines as a table for the terminal."""
    from rich import box
    from rich.markup import escape
    from rich.table import Table

    from .tables import number, spread

    table = Table(title=escape(title), title_justify="left", box=box.SIMPLE_HEAD, pad_edge=False)
    headings = ["phase,\nprompt", "side", "ms", "quartiles", "tokens/s", "GB/s of\nweights"]
    for heading in (*headings, "of\ncopy", "stock /\npatched"):
        number_column = heading not in headings[:2]
        table.add_column(heading, justify="right" if number_column else "left", overflow="fold")
    for line in found:
        patched = line.side == "patched"
        table.add_row(
            *(f"{line.phase} {line.prompt}", line.side, number(line.milliseconds.median)),
            *(spread(line.milliseconds), number(line.tokens_a_second)),
            *((number(line.rate / 1e9), f"{line.rate / line.copy:.1%}") if line.rate else ("", "")),
            f"{line.ratio.text(3)}\n{spread(line.ratio)}" if patched else "",
        )
    return table


def draw(path: str, found: list[Line], title: str) -> None:
    """Write an image: the time of a prefill and of a decode step against the prompt's length.

    Raises:
        OSError, ValueError: If matplotlib cannot write the file.
    """
    from matplotlib.figure import Figure

    figure = Figure(figsize=(10, 4), layout="constrained")
    figure.suptitle(title)
    for phase, axes in zip(("prefill", "decode"), figure.subplots(1, 2), strict=True):
        for side in SIDES:
            of_side = [line for line in found if (line.phase, line.side) == (phase, side)]
            points = [(line.prompt, line.milliseconds.median) for line in of_side]
            axes.plot(*zip(*points, strict=True), marker="o", label=side)
        if phase == "decode" and of_side:
            bound = 1e3 * of_side[0].weights / of_side[0].copy
            axes.axhline(bound, color="black", label="weights at a copy's pace")
        axes.set(title=phase, xlabel="tokens of the prompt", ylabel="ms", xscale="log")
        axes.set_ylim(bottom=0)
        axes.legend()
    figure.savefig(path)
