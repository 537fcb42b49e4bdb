"""Plots of figures: time against rows, and a roofline."""

from __future__ import annotations

import itertools
from collections.abc import Iterable

from .results import Line

_STYLES = ("-", "--", ":", "-.")
_MARKERS = "os^vD*"


def draw(path: str, lines: list[Line], title: str) -> None:
    """Write an image with a panel an op, and the roofline of its largest shapes.

    Raises:
        OSError, ValueError: If matplotlib cannot write the file.
    """
    from matplotlib.figure import Figure

    ops = list(dict.fromkeys(line.op for line in lines))
    figure = Figure(figsize=(6 * (len(ops) + 1), 5), layout="constrained")
    figure.suptitle(title)
    *panels, last = figure.subplots(1, len(ops) + 1)
    for op, axes in zip(ops, panels, strict=True):
        _times(axes, [line for line in lines if line.op == op])
    _roofline(last, lines)
    figure.savefig(path)


def _times(axes, lines: list[Line]) -> None:
    """Time against rows, or against the size of matrices: a line a contestant, length and dtype."""
    multiplies = lines[0].multiplies
    contestants = list(dict.fromkeys(line.contestant for line in lines))
    others = list(dict.fromkeys(_other(line) for line in lines))
    for other, contestant in itertools.product(others, contestants):
        points = [
            (line.rows, line.seconds.median * 1e6)
            for line in lines
            if (_other(line), line.contestant) == (other, contestant)
        ]
        if points:
            axes.plot(
                *zip(*sorted(points), strict=True),
                color=f"C{contestants.index(contestant) % 10}",
                linestyle=_STYLES[others.index(other) % len(_STYLES)],
                marker=_MARKERS[contestants.index(contestant) // 10 % len(_MARKERS)],
                label=f"{contestant}, {other}",
            )
    axes.set(xscale="log", yscale="log", title=f"{lines[0].op}: time")
    axes.set(xlabel="rows and columns" if multiplies else "rows", ylabel="µs a call")
    axes.set_xscale("log", base=2)
    axes.grid(alpha=0.3)
    axes.legend(fontsize="xx-small")


def _other(line: Line) -> str:
    return line.dtype if line.multiplies else f"{line.length} {line.dtype}"


def _roofline(axes, lines: Iterable[Line]) -> None:
    """Operations a second against operations a byte, each at its largest shape."""
    from matplotlib.ticker import NullFormatter

    largest: dict[tuple, Line] = {}
    for line in lines:
        key = (line.op, line.dtype, line.contestant)
        if key not in largest or line.moved > largest[key].moved:
            largest[key] = line
    found = list(largest.values())
    copy, peak = max(line.copy for line in found), found[0].peak
    intensities = [line.flops / line.moved for line in found]
    edges = [min(*intensities, peak / copy) / 4, peak / copy, max(*intensities, peak / copy) * 4]
    axes.set(xscale="log", yscale="log")
    axes.plot(edges, [min(peak, copy * edge) / 1e9 for edge in edges], color="black")
    axes.xaxis.set_minor_formatter(NullFormatter())
    axes.yaxis.set_minor_formatter(NullFormatter())
    axes.annotate(f"copy {copy / 1e9:.4g} GB/s", (edges[0], copy * edges[0] / 1e9))
    axes.annotate(f"MLX's matmul {peak / 1e9:.4g}", (edges[1], peak / 1e9), va="bottom")
    names = list(dict.fromkeys(line.contestant for line in found))
    kinds = list(dict.fromkeys((line.op, line.dtype) for line in found))
    for line, intensity in zip(found, intensities, strict=True):
        axes.plot(
            intensity,
            line.flop_rate / 1e9,
            color=f"C{names.index(line.contestant) % 10}",
            marker=_MARKERS[kinds.index((line.op, line.dtype)) % len(_MARKERS)],
            linestyle="",
            label=f"{line.contestant}, {line.op} {line.dtype}",
        )
    axes.set(title="roofline, each at its largest shape")
    axes.set(xlabel="operations a byte (each tensor once)", ylabel="GFLOP/s")
    axes.grid(alpha=0.3)
    axes.legend(fontsize="xx-small")
