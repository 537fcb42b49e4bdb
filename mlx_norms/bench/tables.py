"""Tables of figures on the terminal."""

from __future__ import annotations

import itertools
from collections.abc import Iterable

from rich.markup import escape
from rich.table import Table

from mlx_norms import timing

from .results import Line


def spread(samples: timing.Samples, factor: float = 1.0) -> str:
    """Quartiles."""
    return " to ".join(f"{quartile * factor:.4g}" for quartile in samples.quartiles)


def table(lines: Iterable[Line], title: str) -> Table:
    """Times and rates: bytes a second, or, of matrix products, operations.

    The last columns say how many times as fast a contestant is as the baseline, and a rung of a
    ladder as the rung before.
    """
    lines = list(lines)
    multiplies = any(line.multiplies for line in lines)
    ladder = any(line.fixes for line in lines)
    headings = ["µs", "quartiles", *(("GFLOP/s", "of peak") if multiplies else ("GB/s", "of copy"))]
    headings += ["B/element", "x MLX" if multiplies else "x mx.fast"]
    headings += ["x before"] * ladder
    found = Table(title=escape(title), title_justify="left")
    for heading in ("op", "dtype", "shape", "contestant"):
        found.add_column(heading, no_wrap=True)
    for heading in headings:
        found.add_column(heading, justify="right")
    if ladder:
        found.add_column("fixes")
    shapes = itertools.groupby(lines, key=lambda line: (line.op, line.dtype, *_shape(line)))
    for _, group in shapes:
        rung = None
        for line in group:
            texts = _texts(line)
            if ladder:
                faster = rung.seconds.over(line.seconds) if rung and line.fixes else None
                texts += [f"{faster.median:.2f}" if faster else "", line.fixes]
            found.add_row(*map(escape, texts))
            rung = line if line.fixes else rung
        found.add_section()
    return found


def _shape(line: Line) -> tuple[int, int]:
    return line.rows, line.length


def _texts(line: Line) -> list[str]:
    if line.multiplies:
        rate = [f"{line.flop_rate / 1e9:.4g}"]
        rate += [f"{line.flop_rate / line.peak:.1%}" if line.peak else ""]
    else:
        rate = [f"{line.rate / 1e9:.4g}", f"{line.rate / line.copy:.1%}"]
    return [
        line.op,
        line.dtype,
        "x".join(map(str, _shape(line))),
        line.contestant,
        f"{line.seconds.median * 1e6:.4g}",
        spread(line.seconds, 1e6),
        *rate,
        f"{line.bytes_an_element:.3g}",
        f"{line.baseline.median:.2f}" if line.baseline else "",
    ]
