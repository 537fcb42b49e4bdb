"""Finds how many vectors a thread the kernels are fastest with on a GPU, at each length of rows.

Runs each op with every number of vectors that its kernel was instantiated for and that makes a
difference, and prints the device's GB/s, each tensor of x's shape counted once. "table" is what
csrc/gpu/geometry.cpp chooses. The best of a row, and what is within 1 % of it, are marked.

--device cpu tries the script, and says nothing about geometry.
"""

from __future__ import annotations

import argparse
import re
import sys
from dataclasses import dataclass
from pathlib import Path

import mlx.core as mx
from rich.console import Console
from rich.table import Table

from mlx_norms import _ext
from mlx_norms._bench import machine
from mlx_norms._bench.cells import DTYPES as MLX_DTYPES
from mlx_norms._bench.cells import Cell
from mlx_norms._bench.contestants import contestants
from mlx_norms._bench.kernel_times import Clock, Trace, calls_past_cache
from mlx_norms._bench.results import CsvFile

KERNELS = Path(__file__).parents[1] / "kernels"
OPS = {"norm": ("rms", "layer", "add_rms"), "norm_vjp": ("rms", "layer")}
DTYPES = {2: "bfloat16", 4: "float32"}
LENGTHS = (64, 128, 256, 512, 768, 1024, 1536, 2048, 3072, 4096, 5120, 8192, 12288, 16384, 32768)
VECTOR_BYTES = 16
THREADS = 32
TENSOR_BYTES = 1 << 28  # several times the L2 cache
BY_TABLE = 0
CLOSE = 0.99

COLUMNS = ["kernel", "op", "item_size", "length", "rows", "vectors", "gbps", "of_best", "best"]
COLUMNS += ["method"]


@dataclass(frozen=True)
class Candidate:
    kernel: str
    cell: Cell
    vectors: int


def instantiated(kernel: str) -> dict[int, list[int]]:
    """The numbers of vectors a thread that a kernel is there for, by elements a vector."""
    text = next(KERNELS.rglob(f"{kernel}.metal")).read_text()
    found: dict[int, list[int]] = {}
    for width, vectors in re.findall(rf"^INSTANTIATE_{kernel.upper()}\((\d+), (\d+)\)", text, re.M):
        found.setdefault(int(width), []).append(int(vectors))
    return found


def candidates(kernel: str, cell: Cell) -> list[Candidate]:
    """Those in which a row is not already one SIMD-group's with half as many."""
    width = VECTOR_BYTES // MLX_DTYPES[cell.dtype].size
    row_vectors = -(-cell.length // width)
    different = [v for v in instantiated(kernel)[width] if v == 1 or v * THREADS < 2 * row_vectors]
    return [Candidate(kernel, cell, v) for v in (BY_TABLE, *different)]


def sweep(clock: Clock, kernel: str, cells: list[Cell], calls: int | None) -> list[Candidate]:
    """Measure all candidates, and give them in order."""
    backward = kernel == "norm_vjp"
    measured = []
    for cell in cells:
        if mx.get_cache_memory() > 16 << 30:
            mx.clear_cache()
        ours = contestants(cell)["ours"]
        for candidate in candidates(kernel, cell):
            _ext.set_vectors(backward, candidate.vectors)
            clock.measure(candidate, ours, calls or calls_past_cache(cell))
            measured.append(candidate)
        _ext.set_vectors(backward, BY_TABLE)
    return measured


def table_of(kernel: str, rates: dict[Candidate, float]) -> Table:
    vectors = sorted({candidate.vectors for candidate in rates} - {BY_TABLE})
    table = Table(title=f"{kernel}: GB/s by vectors a thread", title_justify="left")
    for heading in ("op", "item size", "length", "table", *map(str, vectors)):
        table.add_column(heading, justify="right")
    for cell, row in by_cell(rates).items():
        best = max(row.values())
        texts = [_marked(row.get(v), best) for v in (BY_TABLE, *vectors)]
        item_size = MLX_DTYPES[cell.dtype].size
        table.add_row(cell.label, str(item_size), str(cell.length), *texts)
    return table


def _marked(rate: float | None, best: float) -> str:
    if rate is None:
        return ""
    return f"[bold green]{rate:.0f}*[/bold green]" if rate >= CLOSE * best else f"{rate:.0f}"


def by_cell(rates: dict[Candidate, float]) -> dict[Cell, dict[int, float]]:
    cells: dict[Cell, dict[int, float]] = {}
    for candidate, rate in rates.items():
        cells.setdefault(candidate.cell, {})[candidate.vectors] = rate
    return cells


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--kernel", choices=OPS, action="append", help="one of the kernels")
    parser.add_argument("--length", type=int, action="append", help="one of the lengths of rows")
    parser.add_argument("--csv", metavar="FILE", help="write the figures with device and versions")
    parser.add_argument("--device", choices=("gpu", "cpu"), default="gpu")
    args = parser.parse_args()

    tiny = args.device == "cpu"
    mx.set_default_device(mx.cpu if tiny else mx.gpu)
    mx.random.seed(0)
    console = Console()
    if not console.is_terminal:
        console = Console(width=120)
    facts = machine.facts() | {"driver": machine.driver_version()}
    console.print(", ".join(f"{key} {value}" for key, value in facts.items()))
    tensor_bytes = 1 << 16 if tiny else TENSOR_BYTES

    lines = []
    for kernel in args.kernel or OPS:
        cells = [
            Cell(op, dtype, max(1, tensor_bytes // (length * size)), length, kernel == "norm_vjp")
            for op in OPS[kernel]
            for size, dtype in DTYPES.items()
            for length in args.length or LENGTHS
        ]
        with Clock(not tiny and Trace.available()) as clock:
            measured = sweep(clock, kernel, cells, 2 if tiny else None)
        rates = {
            c: c.cell.moved / clock.times[c].together / 1e9 for c in measured if c in clock.times
        }
        console.print(table_of(kernel, rates))
        best = {cell: max(row.values()) for cell, row in by_cell(rates).items()}
        lines += [
            [kernel, c.cell.label, MLX_DTYPES[c.cell.dtype].size, c.cell.length, c.cell.rows]
            + [c.vectors or "table", f"{rate:.1f}", f"{rate / best[c.cell]:.4f}"]
            + ["best" if rate == best[c.cell] else "", clock.times[c].method]
            for c, rate in rates.items()
        ]
    if args.csv:
        with open(args.csv, "w", newline="") as file:
            writer = CsvFile(file, COLUMNS, facts)
            for line in lines:
                writer.write(dict(zip(COLUMNS, line, strict=True)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
