"""Times the norms on the CPU against a copy of the same bytes, mx.fast and torch's layer_norm.

The copy is NumPy's, half of the bytes in and half out, on two threads; torch, where it is
installed, has two as well. Inputs come from past the last cache, or with --hot from it.

Prints ratios of times, medians with their quartiles: ours over the copy's (1 is the speed of a
copy), and those of the others over ours (above 1, ours is faster).

The script starts itself again with glibc's malloc told to keep freed memory (machine.py says why).
--default-malloc shows what it looks like without.
"""

from __future__ import annotations

import argparse
import itertools
import os
import sys
from concurrent.futures import ThreadPoolExecutor

import mlx.core as mx
import numpy as np
from rich.console import Console
from rich.progress import track
from rich.table import Table

from mlx_norms._bench import clocks, contestants, machine, peers, timing
from mlx_norms._bench.cells import DTYPES, Cell
from mlx_norms._bench.results import CsvFile

THREADS = 2
SHAPES = [(512, 4096), (8192, 768)]
NORMS = ("rms", "layer", "add_rms")
COLUMNS = ["op", "dtype", "rows", "length", "ratio", "median", "lower_quartile", "upper_quartile"]


class Copies:
    """A copy on two threads, that takes its inputs from sets in turn as contestants.py's do."""

    def __init__(self, moved: int, sets: int) -> None:
        self.output_bytes = moved // 2
        results = timing.batch_size(self.output_bytes)
        self._inputs = [np.ones(self.output_bytes, np.uint8) for _ in range(sets)]
        self._outputs = [np.zeros(self.output_bytes, np.uint8) for _ in range(results)]
        self._threads = ThreadPoolExecutor(THREADS)
        self._turn = 0

    def prepare(self, count: int) -> list[tuple]:
        turns = range(self._turn, self._turn + count)
        self._turn += count
        ins, outs = self._inputs, self._outputs
        return [(outs[turn % len(outs)], ins[turn % len(ins)]) for turn in turns]

    def finish(self, pending: list[tuple]) -> None:
        cut = self.output_bytes // THREADS

        def part(thread: int) -> None:
            for to, source in pending:
                np.copyto(to[thread * cut :][:cut], source[thread * cut :][:cut])

        list(self._threads.map(part, range(THREADS)))


def measure(cell: Cell, names: list[str], rounds: int, hot: bool) -> dict[str, timing.Samples]:
    """The ratios at a cell, by name."""
    calls = contestants.contestants(cell, names if cell.op == "layer" else names[:1], hot=hot)
    calls["copy"] = Copies(cell.moved, contestants.sets_needed(cell.input_bytes, hot))
    clocked = {name: clocks.HostClock(call) for name, call in calls.items()}
    seconds = timing.measure(clocked, rounds=rounds, sample_seconds=clocks.HOST_SECONDS)
    ours = seconds.pop("ours")
    ratios = {"ours/copy": ours.over(seconds.pop("copy"))}
    return ratios | {f"{name}/ours": samples.over(ours) for name, samples in seconds.items()}


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--hot", action="store_true", help="inputs from the cache")
    parser.add_argument("--rounds", type=int, default=9, help="samples of each contestant")
    parser.add_argument("--csv", metavar="FILE", help="write all ratios with device and versions")
    parser.add_argument(
        "--default-malloc", action="store_true", help="leave malloc as it is in this environment"
    )
    args = parser.parse_args()
    os.environ["MLX_NORMS_CPU_THREADS"] = str(THREADS)  # read at the first call
    if not args.default_malloc:
        machine.restart_keeping_memory()

    mx.set_default_device(mx.cpu)
    mx.random.seed(0)
    console = Console()
    if not console.is_terminal:
        console = Console(width=100)
    names = peers.available(("mx.fast", "torch"), console.print)
    if "torch" in names:
        sys.modules["torch"].set_num_threads(THREADS)
    facts = machine.facts() | peers.versions(names)
    console.print(", ".join(f"{key} {value}" for key, value in facts.items()))
    progress = Console(stderr=True)
    cells = [
        Cell(op, dtype, rows, length, backward)
        for backward, (rows, length), op, dtype in itertools.product(
            (False, True), SHAPES, NORMS, DTYPES
        )
        if not (backward and op == "add_rms")
    ]
    table = Table()
    for heading in ("op", "dtype", "shape", "ours/copy", "quartiles", "others/ours"):
        table.add_column(heading, no_wrap=True)
    lines = []
    for cell in track(cells, "measuring", console=progress, disable=not progress.is_terminal):
        ratios = measure(cell, names, args.rounds, args.hot)
        op = f"{cell.label} vjp" if cell.backward else cell.label
        for name, ratio in ratios.items():
            values = [op, cell.dtype, cell.rows, cell.length, name, ratio.median, *ratio.quartiles]
            lines.append(dict(zip(COLUMNS, values, strict=True)))
        copy = ratios.pop("ours/copy")
        table.add_row(
            op,
            cell.dtype,
            f"{cell.rows}x{cell.length}",
            f"{copy.median:.2f}",
            "{:.2f}-{:.2f}".format(*copy.quartiles),
            ", ".join(f"{name.split('/')[0]} {each.median:.2f}" for name, each in ratios.items()),
        )
        contestants.make_room()
    console.print(table)
    if args.csv:
        with open(args.csv, "w", newline="") as file:
            writer = CsvFile(file, COLUMNS, facts)
            for line in lines:
                writer.write(line)
    return 0


if __name__ == "__main__":
    sys.exit(main())
