"""Plots of rates against the shape, and of a roofline."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from .results import Line
from .tables import number

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# Color stands for the provider, the marker's filling for the dtype and dashes for the number of
# rows; in the roofline, the marker's shape stands for the op.
_MARKERS = "os^vD*PXhp<>8dH."
_FILLS = ("full", "none", "left", "right", "top", "bottom")
_DASHES = ("-", "--", "-.", ":", (0, (6, 1)), (0, (3, 1, 1, 1, 1, 1)), (0, (1, 4)), (0, (8, 4)))
_COLUMNS = 3
_PANEL, _LEGEND_LINE, _DPI = (4.3, 3.6), 0.22, 128  # inches, and dots per inch
_MOST_TICKS = 7  # that fit side by side with labels


def draw(path: str, lines: list[Line], title: str) -> None:
    """Write the image of :func:`figure`.

    Raises:
        OSError, ValueError: If matplotlib cannot write the file.
    """
    figure(lines, title).savefig(path)


def figure(lines: list[Line], title: str) -> Figure:
    """A panel per op and a roofline of its largest shapes, with one legend for all."""
    from matplotlib.figure import Figure

    styles = _Styles(lines)
    legend = styles.legend()
    ops = _each(lines, "op")
    columns = min(_COLUMNS, len(ops) + 1)
    rows = math.ceil((len(ops) + 1) / columns)
    below = math.ceil(len(legend) / (2 * columns)) * _LEGEND_LINE + 0.5
    width = max(columns * _PANEL[0], 10)
    found = Figure(figsize=(width, rows * _PANEL[1] + below), dpi=_DPI, layout="constrained")
    found.suptitle(title)
    found.get_layout_engine().set(w_pad=0.1)
    grid = found.add_gridspec(rows, columns)
    for i, op in enumerate(ops):
        axes = found.add_subplot(grid[divmod(i, columns)])
        _rates(axes, [line for line in lines if line.op == op], styles)
    row, column = divmod(len(ops), columns)
    _roofline(found.add_subplot(grid[row, column:]), lines, styles)
    found.legend(handles=legend, loc="outside lower center", ncols=2 * columns, fontsize="small")
    return found


def _each(lines: Iterable[Line], name: str) -> list:
    return list(dict.fromkeys(getattr(line, name) for line in lines))


class _Styles:
    """The style of each provider, dtype, number of rows and op."""

    def __init__(self, lines: list[Line]) -> None:
        from matplotlib import colormaps

        providers = _each(lines, "provider")
        colors = colormaps["tab10" if len(providers) <= 10 else "tab20"].colors
        self.color = dict(zip(providers, itertools.cycle(colors)))
        self.fill = dict(zip(_each(lines, "dtype"), itertools.cycle(_FILLS)))
        self.marker = dict(zip(_each(lines, "op"), itertools.cycle(_MARKERS)))
        self._lengths = {
            op for op in self.marker if len({line.length for line in lines if line.op == op}) > 1
        } - {line.op for line in lines if line.multiplies}
        # The largest number of rows comes first, and gets the plainest line.
        rows = sorted({line.rows for line in lines if line.op in self._lengths}, reverse=True)
        self._dashes = dict(zip(rows, itertools.cycle(_DASHES)))
        self._held_against = {line.multiplies for line in lines}
        self._peak_of = lines[0].peak_of
        self.roof = Roof.of(lines)

    def along(self, op: str) -> str:
        """An op's x axis: the row length, or the number of rows if there is only one length."""
        return "length" if op in self._lengths else "rows"

    def dashes(self, line: Line) -> object:
        return self._dashes[line.rows] if line.op in self._lengths else "-"

    def legend(self) -> list:
        from matplotlib.lines import Line2D

        def entry(label: str, **style) -> Line2D:
            return Line2D([], [], label=label, **{"color": "0.3", "linestyle": ""} | style)

        found = [entry(name, color=color, linestyle="-") for name, color in self.color.items()]
        if False in self._held_against:
            found.append(entry("a copy", color="black", linestyle="-"))
        if True in self._held_against:
            found.append(entry(f"{self._peak_of}, large", color="black", linestyle=":"))
        found += [entry(dtype, marker="o", fillstyle=fill) for dtype, fill in self.fill.items()]
        if len(self._dashes) > 1:
            found += [
                entry(f"{rows} row{'s' * (rows > 1)}", linestyle=dashes)
                for rows, dashes in self._dashes.items()
            ]
        found += [entry(f"roofline: {op}", marker=marker) for op, marker in self.marker.items()]
        return found + [
            entry(f"roof of {text}", color="black", linestyle="-") for text in self.roof.texts()
        ]


@dataclass(frozen=True)
class Roof:
    """The largest rates that were measured, and of what: no point is above.

    A copy and a matmul are usually the fastest, but a norm may find its inputs in the cache.
    """

    bytes: tuple[float, str]  # a second
    flops: tuple[float, str]

    @classmethod
    def of(cls, lines: Iterable[Line]) -> Roof:
        lines = list(lines)
        copies = [(line.copy, "a copy") for line in lines]
        peaks = [(line.peak, line.peak_of) for line in lines if line.peak]
        named = [(line, f"{line.provider}, {line.op} {line.rows}x{line.length}") for line in lines]
        return cls(
            max(*copies, *((line.rate, name) for line, name in named)),
            max(*peaks, *((line.flop_rate, name) for line, name in named)),
        )

    def texts(self) -> list[str]:
        return [
            f"bytes: {self.bytes[1]}, {number(self.bytes[0] / 1e9)} GB/s",
            f"operations: {self.flops[1]}, {number(self.flops[0] / 1e9)} GFLOP/s",
        ]


def _rates(axes: Axes, lines: list[Line], styles: _Styles) -> None:
    """GB/s against the length or number of rows, or GFLOP/s against the matrix size."""
    op, multiplies = lines[0].op, lines[0].multiplies
    along = styles.along(op)
    shown = sorted({getattr(line, along) for line in lines})
    for dtype, dashes in dict.fromkeys((line.dtype, styles.dashes(line)) for line in lines):
        own = [line for line in lines if (line.dtype, styles.dashes(line)) == (dtype, dashes)]
        for name in _each(own, "provider"):
            rates = {getattr(x, along): _rate(x) for x in own if x.provider == name}
            axes.plot(
                *zip(*sorted(rates.items()), strict=True),
                color=styles.color[name],
                linestyle=dashes,
                linewidth=1.4,
                marker="o",
                markersize=5,
                fillstyle=styles.fill[dtype],
                label=name,
            )
        if not multiplies:
            copies = {getattr(line, along): _copy(line) for line in own}
            points = list(zip(*sorted(copies.items()), strict=True))
            alone = {"marker": "_", "markersize": 40} if len(shown) == 1 else {}
            style = {"marker": "o", "markersize": 3, "fillstyle": styles.fill[dtype]} | alone
            axes.plot(*points, color="black", linestyle=dashes, linewidth=1, label="copy", **style)
    if multiplies and lines[0].peak:
        axes.axhline(lines[0].peak / 1e9, color="black", linestyle=":", label="peak")
    axes.set_ylim(bottom=0)
    axes.set(title=_title(lines, along), ylabel="GFLOP/s" if multiplies else "GB/s")
    names = {"length": "length of rows", "rows": "number of rows"}
    axes.set_xlabel("rows and columns" if multiplies else names[along])
    ticks(axes, shown)
    axes.grid(alpha=0.3)


def ticks(axes: Axes, numbers: Iterable[int]) -> None:
    """A logarithmic x axis with these numbers as ticks."""
    shown = sorted(set(numbers))
    axes.set_xscale("log", base=2)
    axes.set_xticks(shown, map(_short, shown), rotation=60 if len(shown) > _MOST_TICKS else 0)
    axes.minorticks_off()


def _title(lines: list[Line], along: str) -> str:
    """The op, and the part of the shape that is the same in its whole panel."""
    op, rows = lines[0].op, _each(lines, "rows")
    if lines[0].multiplies:
        return op
    if along == "rows":
        return f"{op}, rows of {lines[0].length}"
    return op if len(rows) > 1 else f"{op}, {rows[0]} row{'s' * (rows[0] > 1)}"


def _short(number: int) -> str:
    return f"{number // 1024}k" if number >= 1024 and number % 1024 == 0 else str(number)


def _rate(line: Line) -> float:
    return (line.flop_rate if line.multiplies else line.rate) / 1e9


def _copy(line: Line) -> float:
    """GB/s of the copy, or NaN if its time is not mostly spent on bytes."""
    return line.copy / 1e9 if line.copy_is_bytes else math.nan


def _roofline(axes: Axes, lines: Iterable[Line], styles: _Styles) -> None:
    """Operations per second against operations per byte, each at its largest shape."""
    from matplotlib.ticker import NullFormatter

    largest: dict[tuple, Line] = {}
    for line in lines:
        key = (line.op, line.dtype, line.provider)
        if key not in largest or line.moved > largest[key].moved:
            largest[key] = line
    found = list(largest.values())
    (copy, _), (peak, _) = styles.roof.bytes, styles.roof.flops
    intensities = [line.flops / line.moved for line in found]
    edges = [min(*intensities, peak / copy) / 4, peak / copy, max(*intensities, peak / copy) * 4]
    axes.set(xscale="log", yscale="log")
    axes.plot(edges, [min(peak, copy * edge) / 1e9 for edge in edges], color="black")
    axes.xaxis.set_minor_formatter(NullFormatter())
    axes.yaxis.set_minor_formatter(NullFormatter())
    for line, intensity in zip(found, intensities, strict=True):
        axes.plot(
            intensity,
            line.flop_rate / 1e9,
            color=styles.color[line.provider],
            marker=styles.marker[line.op],
            fillstyle=styles.fill[line.dtype],
            linestyle="",
            label=f"{line.provider}, {line.op} {line.dtype}",
        )
    axes.set_title("roofline, each at its largest shape", fontsize="medium")
    axes.set(xlabel="operations a byte (each tensor once)", ylabel="GFLOP/s")
    axes.grid(alpha=0.3)
