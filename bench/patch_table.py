"""Finds the shapes at which patched models should go to mx.fast, on the default device.

Times what a patched model calls against mx.fast at a grid of shapes: the norm, and the norm of a
sum, which is fused when patched. Both sides give the sum too. Forward only, since the choice is
made when the norm is called.

A cell is slower if ours did not win three quarters of the rounds, and then lost three quarters of
those of a second, longer measurement. It reaches halfway (geometrically) to its neighbours in the
grid, and nowhere beyond the grid.

Prints the table's rows of this backend. --write puts them into mlx_norms/patching/slower.csv, in
place of those that this backend has there. The rows of other backends stay as they are.
"""

from __future__ import annotations

import argparse
import csv
import importlib.metadata
import io
import itertools
import math
import sys
from dataclasses import dataclass
from pathlib import Path

import contest
import mlx.core as mx
from rich.console import Console
from rich.progress import track

import mlx_norms
from mlx_norms import _built, _ext
from mlx_norms.bench import machine
from mlx_norms.bench.cells import DTYPES, EPS

TABLE = Path(__file__).parents[1] / "mlx_norms" / "patching" / "slower.csv"
COLUMNS = ["backend", "op", "dtype", "rows_from", "rows_to", "length_from", "length_to"]
COLUMNS += ["ratio", "device", "mlx"]
OPS = ["rms", "layer", "add_rms", "add_layer"]
ROWS = [1, 8, 64, 512, 4096]
LENGTHS = [64, 128, 768, 1024, 2048, 4096, 8192, 16384]
MOST_ELEMENTS = 4096 * 4096


@dataclass(frozen=True)
class Cell:
    op: str
    dtype: str
    rows: int
    length: int

    def contest(self) -> contest.Contest:
        x, residual = (self._random(self.rows, self.length) for _ in range(2))
        weight, bias = (self._random(self.length) for _ in range(2))
        mx.eval(x, residual, weight, bias)

        def contestant(rms_norm, layer_norm):
            def norm(x):
                if self.op.endswith("rms"):
                    return rms_norm(x, weight, EPS)
                return layer_norm(x, weight, bias, EPS)

            def norm_of_sum():
                total = x + residual
                return norm(total), total

            return norm_of_sum if self.op.startswith("add") else lambda: norm(x)

        fast = contestant(mx.fast.rms_norm, mx.fast.layer_norm)
        with mlx_norms.patched():
            ours = contestant(mx.fast.rms_norm, mx.fast.layer_norm)
            return contest.hold({"fast": fast, "ours": ours})

    def _random(self, *shape: int) -> mx.array:
        return mx.random.normal(shape).astype(DTYPES[self.dtype])


def cells() -> list[Cell]:
    return [
        Cell(op, dtype, rows, length)
        for op, dtype, rows, length in itertools.product(OPS, DTYPES, ROWS, LENGTHS)
        if rows * length <= MOST_ELEMENTS
    ]


def reach(value: int, grid: list[int]) -> tuple[int, int]:
    """The first and last number that a cell at ``value`` stands for."""
    ends = [math.isqrt(below * above) for below, above in itertools.pairwise(grid)]
    index = grid.index(value)
    first = ends[index - 1] + 1 if index > 0 else value
    last = ends[index] if index < len(ends) else value
    return first, last


def line(backend: str, cell: Cell, ratio: float) -> dict[str, object]:
    bounds = (*reach(cell.rows, ROWS), *reach(cell.length, LENGTHS))
    about = (f"{ratio:.3f}", machine.chip(), importlib.metadata.version("mlx"))
    return dict(zip(COLUMNS, (backend, cell.op, cell.dtype, *bounds, *about), strict=True))


def other_backends(backend: str) -> list[dict[str, str]]:
    with TABLE.open(newline="") as file:
        return [row for row in csv.DictReader(file) if row["backend"] != backend]


def text(lines: list[dict]) -> str:
    file = io.StringIO()
    writer = csv.DictWriter(file, COLUMNS, lineterminator="\n")
    writer.writeheader()
    writer.writerows(lines)
    return file.getvalue()


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--write", action="store_true", help=f"write {TABLE.name}")
    args = parser.parse_args()
    backend = machine.backend()
    if backend not in _built.BACKENDS:
        parser.error(f"there are no kernels for {backend}: calls go to mx.fast there anyway")
    machine.restart_keeping_memory()

    _ext.set_slower_cells([])  # which would send calls to mx.fast
    mx.random.seed(0)
    console = Console(stderr=True)
    console.print(", ".join(f"{key} {value}" for key, value in machine.facts().items()))
    contests = {
        cell: cell.contest()
        for cell in track(cells(), "measuring", console=console, disable=not console.is_terminal)
    }
    closest = min(contests, key=lambda cell: contests[cell].speedup.median)
    slower = [cell for cell in contests if contests[cell].slower]
    console.print(
        f"{len(slower)} of {len(contests)} cells are slower than mx.fast. The lowest of fast's "
        f"time over ours is {contests[closest].speedup.median:.2f}: {closest}"
    )

    lines = [line(backend, cell, contests[cell].speedup.median) for cell in slower]
    if args.write:
        # csv's own end of line is that of Windows, hence newline="" here and there.
        TABLE.write_text(text(other_backends(backend) + lines), newline="")
    else:
        print(text(lines), end="")
    return 0


if __name__ == "__main__":
    sys.exit(main())
