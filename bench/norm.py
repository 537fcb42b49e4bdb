"""Norms: rms, layer, with a residual, per head, queries with keys, group, instance, batch, l2.

Sides take turns in one run. Prints one table: how many times as long each peer takes. Times are a
GPU's own on CUDA; elsewhere, as on Metal, MLX has no device clock for Python, and they are the
host's, for evaluating many calls together. Inputs are taken from several sets in turn, together
twice as large as the last-level cache (its size is the one that Linux reports, or CUDA's driver for
the L2 cache; Apple's chips report none, and 96 MiB is assumed).

--details prints times, and shares of the speed of a copy of the tensors of x's shape, each counted
once. --plot has of each op the geometric mean over its cases, round by round.
"""

from __future__ import annotations

from functools import partial

from harness import grid
from harness.results import Line
from harness.suite import Run, Suite
from mlx_norms._measure.tables import table

LABELS = ("op", "dtype", "rows", "length")


def summary(run: Run, lines: list[Line]) -> None:
    """A row an op and shape, and a column a peer and dtype."""
    cells: dict[tuple, dict[str, str]] = {}
    for line in lines:
        if line.over and line.side != "copy":
            op, dtype, rows, length = line.labels.values()
            row = cells.setdefault((op, f"{rows}x{length}"), {})
            row[f"{line.side} / ours,\n{dtype}"] = line.over.text(2, interval=True)
    columns = list(dict.fromkeys(column for row in cells.values() for column in row))
    found = table("times of peers over ours", ("op", "shape"), columns, lines=False)
    for about, row in cells.items():
        found.add_row(*about, *(row.get(column, "") for column in columns))
    run.console.print(found)


def suite(about: str, backward: bool) -> Suite:
    return Suite(
        about,
        LABELS,
        partial(grid.cases, backward=backward),
        grid.hows,
        device="default",
        options=grid.options,
        after=summary,
    )


SUITE = suite(__doc__, backward=False)
