"""Times every norm against mx.fast on the CPU, forward and backward, at the shapes of the tests.

Forward is the op as called (for add+norm, mx.fast's norm of x + residual); vjp is the gradient of
every input from given cotangents.

Prints fast's time over ours for every cell: above 1 is faster than mx.fast. A cell in which ours
did not win at least three quarters of the rounds is measured again, longer, and then that counts:
it is slower if ours lost three quarters of the rounds. The exit status is 1 if any cell is slower.

"of copy" is the time in which MLX reads and writes the same number of bytes without computing
(mx.abs of float32, half of the bytes in and half out) over our time, each tensor counted once.

The script starts itself again with glibc's malloc told to keep freed memory (machine.py says why).
--default-malloc shows what it looks like without.
"""

from __future__ import annotations

import argparse
import itertools
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import mlx.core as mx
from rich.console import Console
from rich.progress import track
from rich.table import Table

from mlx_norms._bench import machine, timing
from mlx_norms._bench.cells import DTYPES, OPS, Cell
from mlx_norms._bench.results import CsvFile

NORMS = ("rms", "layer", "add_rms", "add_layer")
EDGES = [32, 64, 128, 256, 512, 1024, 4096, 8192]
LENGTHS = [1, 2, *(edge + off for edge in EDGES for off in (-1, 0, 1)), 65536]
ROWS = [1, 3, 513]
QUICK_LENGTHS = [1, 33, 1023, 4096]
QUICK_ROWS = [3, 513]
MOST_ROWS_UP_TO = 8193  # longer rows are timed with fewer of them
WORST = 20

COLUMNS = ["op", "dtype", "rows", "length", "fast_us", "ours_us", "copy_us"]
COLUMNS += ["fast_over_ours", "lower_quartile", "upper_quartile", "of_copy", "rounds"]


def name(cell: Cell) -> str:
    return f"{cell.label} vjp" if cell.backward else cell.label


def contestants(cell: Cell) -> dict[str, Callable[[], object]]:
    op, inputs = OPS[cell.op], cell.inputs()
    outputs = inputs[: 2 if cell.adds else 1]  # of their shapes
    mx.eval(inputs)
    if cell.backward:
        cotangents = cell.cotangents()
        mx.eval(cotangents)
        calls = {
            "ours": lambda: mx.vjp(op.ours, inputs, cotangents)[1],
            "fast": lambda: mx.vjp(op.fast, inputs, cotangents)[1],
        }
        # The gradients of x and residual are the same one.
        gradients = inputs[len(outputs) - 1 :]
        moved = [*inputs, *cotangents, *gradients]
    else:
        calls = {"ours": lambda: op.ours(*inputs), "fast": lambda: op.fast(*inputs)}
        moved = [*inputs, *outputs]
    floats = mx.random.normal((-(-sum(array.nbytes for array in moved) // 8),))
    mx.eval(floats)
    return {**calls, "copy": lambda: mx.abs(floats)}


@dataclass(frozen=True)
class Result:
    cell: Cell
    seconds: dict[str, timing.Samples]  # a call's, of each contestant
    remeasured: bool

    @property
    def speedup(self) -> timing.Samples:
        """fast's time over ours, round by round."""
        return self.seconds["fast"].over(self.seconds["ours"])

    @property
    def slower(self) -> bool:
        """Whether ours lost three quarters of the rounds of a second, longer measurement."""
        return self.remeasured and self.speedup.quartiles[1] < 1

    @property
    def of_copy(self) -> float:
        return self.seconds["copy"].over(self.seconds["ours"]).median


def measure(cell: Cell) -> Result:
    """Once, and again, for longer, if ours did not win three quarters of the rounds."""
    calls = contestants(cell)
    first = Result(cell, timing.measure(calls, rounds=5, sample_seconds=0.005), remeasured=False)
    if first.speedup.quartiles[0] >= 1:
        return first
    longer = timing.measure(calls, rounds=20, sample_seconds=0.01)
    return Result(cell, longer, remeasured=True)


def cells(lengths: list[int], rows: list[int]) -> list[Cell]:
    return [
        Cell(op, dtype, row_count, length, backward)
        for op, backward, dtype, length, row_count in itertools.product(
            NORMS, (False, True), DTYPES, lengths, rows
        )
        if length <= MOST_ROWS_UP_TO or row_count < max(ROWS)
    ]


def ratio_tables(results: list[Result]) -> Iterator[Table]:
    """A table of ratios by length and number of rows for each op and dtype."""
    for (op, dtype), group in itertools.groupby(
        results, key=lambda result: (name(result.cell), result.cell.dtype)
    ):
        by_shape = {(result.cell.length, result.cell.rows): result for result in group}
        rows = sorted({row_count for _, row_count in by_shape})
        table = Table(title=f"{op}, {dtype}", title_justify="left")
        table.add_column("length", justify="right")
        for row_count in rows:
            table.add_column(f"fast/ours, {row_count} rows", justify="right")
        for row_count in rows:
            table.add_column(f"of copy, {row_count} rows", justify="right")
        for length in sorted({length for length, _ in by_shape}):
            line = [by_shape.get((length, row_count)) for row_count in rows]
            table.add_row(
                str(length),
                *(_colored(result) if result else "" for result in line),
                *(f"{result.of_copy:.0%}" if result else "" for result in line),
            )
        yield table


def _colored(result: Result) -> str:
    ratio = f"{result.speedup.median:.2f}"
    return f"[red]{ratio}[/red]" if result.slower else ratio


def worst_table(results: list[Result]) -> Table:
    table = Table(title="Worst cells", title_justify="left")
    for heading in ("op", "dtype"):
        table.add_column(heading, no_wrap=True)
    for heading in ("rows", "length", "fast µs", "ours µs", "fast/ours", "quartiles", "of copy"):
        table.add_column(heading, justify="right")
    for result in sorted(results, key=lambda result: result.speedup.median)[:WORST]:
        cell = result.cell
        table.add_row(
            name(cell),
            cell.dtype,
            str(cell.rows),
            str(cell.length),
            f"{result.seconds['fast'].median * 1e6:.2f}",
            f"{result.seconds['ours'].median * 1e6:.2f}",
            _colored(result),
            "{:.2f}-{:.2f}".format(*result.speedup.quartiles),
            f"{result.of_copy:.0%}",
        )
    return table


def write_csv(path: str, results: list[Result]) -> None:
    with open(path, "w", newline="") as file:
        writer = CsvFile(file, COLUMNS, machine.facts())
        for result in results:
            cell, seconds = result.cell, result.seconds
            times = [seconds[of].median * 1e6 for of in ("fast", "ours", "copy")]
            ratios = [result.speedup.median, *result.speedup.quartiles, result.of_copy]
            values = [name(cell), cell.dtype, cell.rows, cell.length, *times, *ratios]
            writer.write(dict(zip(COLUMNS, [*values, len(seconds["ours"].values)], strict=True)))


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--quick", action="store_true", help="fewer shapes, in about a minute on two cores"
    )
    parser.add_argument("--csv", metavar="FILE", help="write all figures with device and versions")
    parser.add_argument(
        "--default-malloc", action="store_true", help="leave malloc as it is in this environment"
    )
    args = parser.parse_args()
    if not args.default_malloc:
        machine.restart_keeping_memory()

    mx.set_default_device(mx.cpu)
    mx.random.seed(0)
    console = Console()
    if not console.is_terminal:
        console = Console(width=100)
    console.print(", ".join(f"{key} {value}" for key, value in machine.facts().items()))
    todo = cells(QUICK_LENGTHS, QUICK_ROWS) if args.quick else cells(LENGTHS, ROWS)
    progress = Console(stderr=True)
    results = [
        measure(cell)
        for cell in track(todo, "measuring", console=progress, disable=not progress.is_terminal)
    ]

    for table in ratio_tables(results):
        console.print(table)
    console.print(worst_table(results))
    if args.csv:
        write_csv(args.csv, results)
    slower = sum(result.slower for result in results)
    console.print(f"{slower} of {len(results)} cells are slower than mx.fast.")
    return 1 if slower else 0


if __name__ == "__main__":
    sys.exit(main())
