"""The tables and the plot of compare."""

from __future__ import annotations

import mlx.core as mx

import mlx_norms

from .._measure import timing
from . import CommandError, _output, _sides

Rates = dict[str, dict[str, timing.Samples]]  # tokens per second by phase and side
Ratios = dict[str, dict[str, timing.Ratio]]  # how many times as fast as stock, by side and phase

_COLORS = {"stock": "0.7", "patched": "tab:blue", "projections": "tab:green", _sides.NULL: "0.8"}


def over_stock(rates: Rates, side: str, reports: list[mlx_norms.Report]) -> dict[str, timing.Ratio]:
    """How many times as fast as stock a side is, by phase, with a report of each, if any."""
    found = {phase: by_side[side].over(by_side["stock"]) for phase, by_side in rates.items()}
    marked = {phase: _sides.marked(found[phase], of) for phase, of in zip(found, reports)}
    return found | marked


def rate_table(rates: Rates, ratios: Ratios):
    from .._measure.tables import table

    sides = list(rates["decode"])
    numbers = (*sides, *(f"{side} / stock" for side in ratios))
    found = table("Tokens a second: median (interval)", ("",), numbers)
    for phase, by_side in rates.items():
        said = [ratio[phase].text(3, interval=True) for ratio in ratios.values()]
        found.add_row(phase, *map(_spread, by_side.values()), *said)
    return found


def _spread(samples: timing.Samples) -> str:
    return samples.spread(".1f" if samples.median < 100 else ".0f")


def report_table(side: str, reports: list[mlx_norms.Report]):
    """The outcomes of a side's norms, in the prefill and in a decode step."""
    from .._measure.tables import table

    found = table(f"Calls of mx.fast's norms, {side}", ("",), ("prefill", "a decode step"))
    labels = {
        "calls": "calls",
        "passed_on": "left to MLX",
        "fused": "fused",
        "offsets": "offsets",
    }
    if side == "projections":
        labels["projections"] = "with the products that take them"
    for label, text in labels.items():
        found.add_row(text, *(str(getattr(report, label)) for report in reports))
    found.add_section()
    for reason in dict.fromkeys(reason for report in reports for reason in report.reasons):
        found.add_row(reason, *(str(report.reasons.get(reason, 0)) for report in reports))
    return found


def plot(path: str, model: str, rates: Rates, ratios: Ratios) -> None:
    """Plot the speeds into an image file.

    Raises:
        CommandError: If the file cannot be written.
    """
    from matplotlib.figure import Figure

    figure = Figure(figsize=(10, 5), dpi=128, layout="constrained")
    figure.suptitle(f"{model} on the {mx.default_device().type.name}: tokens per second")
    for axes, (phase, by_side) in zip(figure.subplots(1, len(rates)), rates.items(), strict=True):
        medians = [samples.median for samples in by_side.values()]
        intervals = [samples.interval for samples in by_side.values()]
        whiskers = [
            [median - lower for median, (lower, _) in zip(medians, intervals, strict=True)],
            [upper - median for median, (_, upper) in zip(medians, intervals, strict=True)],
        ]
        colors = [_COLORS[side] for side in by_side]
        labels = [
            side if side == "stock" else f"{side}\n/ stock {ratios[side][phase].text(3)}"
            for side in by_side
        ]
        axes.bar(labels, medians, yerr=whiskers, capsize=6, color=colors)
        axes.set_title(phase)
    try:
        figure.savefig(path)
    except (OSError, ValueError) as error:
        raise CommandError(f"--plot {path} cannot be written: {_output.line(error)}") from None
