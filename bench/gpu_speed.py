"""Times the norms against mx.fast and a device-to-device copy on a GPU, in one run.

Sections, all of them by default:

  kernels   the time that kernels run, forward, with the device's bytes a second and their share of
            those of a copy in the same run
  backward  the same for the gradients of every input, from given cotangents and with the forward
            already evaluated
  lengths   as kernels, for rows of many lengths in bfloat16, of as many elements in all
  calls     the time of a call through mx.eval, from building the graph to the result, with many
            independent calls an eval, and which cells take more than 1.03 of the best peer's time

Bytes are those of the tensors of x's shape, each counted once: 2 forward (4 with a residual), 3
backward (4). The copy moves 1 GiB to 1 GiB. "together" is the time that the device is busy, a call,
while independent calls are evaluated together; "alone" is a call's that is evaluated by itself.

Kernel times are CUPTI's, by torch's profiler, where torch is there. Otherwise they are the slope of
the time of evals over the number of calls in them, and the table says so.

The CSV file is written while the run goes on. --device cpu tries the script at tiny shapes.
"""

from __future__ import annotations

import argparse
import contextlib
import gc
import itertools
import math
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import mlx.core as mx
from rich.console import Console
from rich.table import Table

from mlx_norms._bench import clocks, device_copy, machine, timing
from mlx_norms._bench import contestants as norms
from mlx_norms._bench import peers as others
from mlx_norms._bench.cells import Cell
from mlx_norms._bench.kernel_times import Clock, Trace, calls_past_cache
from mlx_norms._bench.results import CsvFile

OPS = ("rms", "layer", "add_rms")
DTYPES = {"bfloat16": "bf16", "float16": "f16", "float32": "f32"}
LARGE = ((32768, 4096), (8192, 8192), (4096, 16384))
SHORT = (8192, 768)
LENGTHS = (64, 128, 256, 512, 768, 1024, 1536, 2048, 2880, 4096, 5120, 8192, 12288, 16384, 32768)
LENGTHS += (65536,)
LENGTHS_ELEMENTS = 1 << 26
GRID_ROWS = (1, 32, 512, 4096, 32768)
GRID_LENGTHS = (128, 768, 4096, 8192, 16384)
FORWARD_TARGET, SHORT_TARGET, BACKWARD_TARGET = 0.95, 0.75, 0.90  # shares of the copy
CALL_TARGET = 1.03  # of the best peer's time
ONE_ROW_TARGET = 0.6e-6  # more than mx.fast; add+rms is to be faster
LAYER_TARGET = 2.0  # times as fast as mx.fast, at large shapes
SAMPLE_SECONDS = 0.022  # an eval's, so that its start does not count
MOST_OUTPUT_BYTES = 48 << 30  # of the calls of an eval, alive together
COPY_BYTES = 1 << 30

COLUMNS = ["section", "op", "dtype", "rows", "length", "contestant", "method", "us", "us_lower"]
COLUMNS += ["us_upper", "alone_us", "gbps", "of_copy", "of_copy_alone", "copy_gbps"]
COLUMNS += ["same_size_copy_gbps", "kernels_a_call", "calls_an_eval", "rounds", "best_peer"]
COLUMNS += ["over_best_peer", "over_lower", "over_upper"]


@dataclass
class Run:
    """Where results go, and what all sections take account of."""

    console: Console
    tiny: bool
    peers: list[str]
    rounds: int
    writer: CsvFile | None = None
    facts: dict[str, str] = field(default_factory=dict)
    copies: dict[int, float] = field(default_factory=dict)

    def cells(self, shapes, ops=OPS, backward=False) -> list[Cell]:
        if self.tiny:
            shapes = dict.fromkeys((min(rows, 16), min(length, 96)) for rows, length in shapes)
        found = [
            Cell(op, dtype, rows, length, backward)
            for op, dtype, (rows, length) in itertools.product(ops, DTYPES, shapes)
        ]
        return found[::5] if self.tiny else found

    def write(self, section: str, cell: Cell | None, **values) -> None:
        if self.writer is None:
            return
        row = dict(section=section, **values)
        if cell is not None:
            row |= dict(op=cell.label, dtype=DTYPES[cell.dtype], rows=cell.rows, length=cell.length)
        self.writer.write(row)

    def copy_rate(self, size: int) -> float:
        """Bytes a second that a copy of ``size`` bytes reads and writes."""
        if size not in self.copies:
            mx.clear_cache()
            seconds = device_copy.measure(size)
            self.copies[size] = 2 * size / seconds.median
            lower, upper = (2 * size / quartile for quartile in reversed(seconds.quartiles))
            self.console.print(
                f"A copy of {size / 2**20:.4g} MiB: {self.copies[size] / 1e9:.0f} GB/s, "
                f"quartiles {lower / 1e9:.0f} to {upper / 1e9:.0f}.",
                highlight=False,
            )
        return self.copies[size]

    def copy_of(self, moved: int) -> float:
        """That of a copy that moves ``moved`` bytes."""
        return self.copy_rate(moved // 2)

    @property
    def copy(self) -> float:
        return self.copy_rate(COPY_BYTES >> 10 if self.tiny else COPY_BYTES)


def kernel_section(run: Run, section: str, cells: list[Cell]) -> None:
    """The sections kernels, backward and lengths."""
    copy = run.copy
    same_size = {size: run.copy_of(size) for size in dict.fromkeys(c.moved for c in cells)}
    measured = kernel_times(run, cells)

    table = Table(title=f"{section}: GB/s and share of the copy", title_justify="left")
    for heading in ("op", "dtype", "shape"):
        table.add_column(heading, no_wrap=True)
    names = ["ours", "mx.fast", *run.peers]
    for heading in (*names, "ours, of copy", "alone", "target", "kernels", "by"):
        table.add_column(heading, justify="right")
    missed = []
    for cell in cells:
        target = _target(cell)
        rates = {}
        for name in names:
            if (seconds := measured.get((cell, name))) is None:
                continue
            rates[name] = rate = cell.moved / seconds.together
            alone = cell.moved / seconds.alone / copy if seconds.alone else ""
            run.write(
                section,
                cell,
                contestant=name,
                method=seconds.method,
                us=seconds.together * 1e6,
                alone_us=seconds.alone * 1e6 if seconds.alone else "",
                gbps=rate / 1e9,
                of_copy=rate / copy,
                of_copy_alone=alone,
                copy_gbps=copy / 1e9,
                same_size_copy_gbps=same_size[cell.moved] / 1e9,
                kernels_a_call=seconds.kernels if seconds.kernels else "",
            )
        ours = measured[cell, "ours"]
        share = rates["ours"] / copy
        if share < target:
            missed.append(cell)
        alone = f"{cell.moved / ours.alone / copy:.1%}" if ours.alone else ""
        table.add_row(
            cell.label,
            DTYPES[cell.dtype],
            f"{cell.rows}x{cell.length}",
            *(f"{rates[name] / 1e9:.0f}" if name in rates else "" for name in names),
            _red_if(share < target, f"{share:.1%}"),
            alone,
            f"{target:.0%}",
            f"{ours.kernels:.3g}" if ours.kernels else "",
            ours.method,
        )
    run.console.print(table)
    run.console.print(f"{section}: {len(missed)} of {len(cells)} cells are under their target.")


def length_section(run: Run) -> None:
    cells = run.cells([(LENGTHS_ELEMENTS // n, n) for n in LENGTHS], ("layer", "add_rms"))
    kernel_section(run, "lengths", [cell for cell in cells if cell.dtype == "bfloat16"])


def _target(cell: Cell) -> float:
    if cell.backward:
        return BACKWARD_TARGET
    return SHORT_TARGET if (cell.rows, cell.length) == SHORT else FORWARD_TARGET


def kernel_times(run: Run, cells: list[Cell]) -> dict:
    """A KernelTime for each cell and contestant: by CUPTI where it sees the kernels."""
    found = {}
    on_gpu = mx.default_device() != mx.cpu
    for cupti in (True, False) if on_gpu and Trace.available() else (False,):
        missing = [cell for cell in cells if (cell, "ours") not in found]
        with Clock(cupti) as clock:
            for cell, name, contestant in _contestants(run, missing):
                with _reported(run, cell, name):
                    clock.measure((cell, name), contestant, _calls_for_kernels(run, cell))
        found |= clock.times
    return found


def _contestants(run: Run, cells: list[Cell]) -> Iterator:
    for cell in cells:
        norms.make_room()
        of_cell = norms.contestants(cell, ("mx.fast", *run.peers))
        yield from ((cell, name, contestant) for name, contestant in of_cell.items())


def _calls_for_kernels(run: Run, cell: Cell) -> int:
    # The outputs, too, are more than the cache holds.
    return 2 if run.tiny else calls_past_cache(cell)


@dataclass(frozen=True)
class CallTimes:
    """Seconds a call of each contestant, round by round."""

    seconds: dict[str, timing.Samples]
    calls: int  # an eval

    @property
    def best_peer(self) -> str:
        peers = [name for name in self.seconds if name != "ours"]
        return min(peers, key=lambda name: self.seconds[name].median)

    @property
    def over_best(self) -> timing.Samples:
        return self.seconds["ours"].over(self.seconds[self.best_peer])


def call_times(run: Run, cell: Cell, rounds: int) -> CallTimes:
    norms.make_room()
    most = max(1, MOST_OUTPUT_BYTES // cell.output_bytes)
    calls = {}
    for name, contestant in norms.contestants(cell, ("mx.fast", *run.peers)).items():
        with _reported(run, cell, name):
            contestant.finish(contestant.prepare(1))
            calls[name] = clocks.HostClock(contestant, building=True, most=most)
    gc.collect()
    gc.disable()
    goal = 1e-3 if run.tiny else SAMPLE_SECONDS
    samples = timing.measure(calls, rounds=rounds, sample_seconds=goal)
    gc.enable()
    return CallTimes(samples, calls["ours"].calls)


def call_section(run: Run) -> None:
    one_row = run.cells([(1, 4096)])
    large = run.cells([*LARGE, SHORT])
    grid = run.cells(itertools.product(GRID_ROWS, GRID_LENGTHS))
    run.console.print(_call_table(run, "calls, one row", one_row, 3 * run.rounds))
    run.console.print(_call_table(run, "calls, large", large, run.rounds))
    grid_calls(run, grid)


def _call_table(run: Run, section: str, cells: list[Cell], rounds: int) -> Table:
    table = Table(title=f"{section}: µs a call through mx.eval (quartiles)", title_justify="left")
    for heading in ("op", "dtype", "shape"):
        table.add_column(heading, no_wrap=True)
    names = ["ours", "mx.fast", *run.peers]
    for heading in (*names, "ours - fast", "fast/ours"):
        table.add_column(heading, justify="right")
    for cell in cells:
        times = call_times(run, cell, rounds)
        _write_calls(run, section, cell, times)
        ours, fast = times.seconds["ours"], times.seconds["mx.fast"]
        more, times_faster = ours.median - fast.median, fast.over(ours).median
        table.add_row(
            cell.label,
            DTYPES[cell.dtype],
            f"{cell.rows}x{cell.length}",
            *(_spread(times.seconds[name]) if name in times.seconds else "" for name in names),
            _red_if(more > _most_over_fast(cell), f"{more * 1e6:+.2f}"),
            _red_if(times_faster < _least_speedup(cell), f"{times_faster:.2f}"),
        )
    return table


def _most_over_fast(cell: Cell) -> float:
    """Seconds that a call of one row may take more than mx.fast's."""
    if cell.rows > 1:
        return math.inf
    return 0.0 if cell.adds else ONE_ROW_TARGET


def _least_speedup(cell: Cell) -> float:
    """mx.fast's time over ours, at least."""
    return LAYER_TARGET if cell.op == "layer" and (cell.rows, cell.length) in LARGE else 0.0


def _red_if(missed: bool, text: str) -> str:
    return f"[red]{text}[/red]" if missed else text


def _spread(samples: timing.Samples) -> str:
    lower, upper = samples.quartiles
    return f"{samples.median * 1e6:.4g} ({lower * 1e6:.4g}-{upper * 1e6:.4g})"


def grid_calls(run: Run, cells: list[Cell]) -> None:
    results = {}
    for cell in cells:
        results[cell] = times = call_times(run, cell, run.rounds)
        _write_calls(run, "calls, grid", cell, times)
    for op, dtype in itertools.product(OPS, DTYPES):
        group = {c: t for c, t in results.items() if (c.op, c.dtype) == (op, dtype)}
        if group:
            label = f"{op.replace('_', '+')}, {DTYPES[dtype]}"
            run.console.print(_grid_table(f"{label}: ours over the best peer", group))

    ratios = {cell: times.over_best.median for cell, times in results.items()}
    for op in OPS:
        of_op = [ratio for cell, ratio in ratios.items() if cell.op == op]
        if of_op:
            run.console.print(
                f"{op.replace('_', '+')}: median {statistics.median(of_op):.3f} of the best peer's."
            )
    median = statistics.median(ratios.values())
    slow = [cell for cell, ratio in ratios.items() if ratio > CALL_TARGET]
    surely = [cell for cell in slow if results[cell].over_best.quartiles[0] > CALL_TARGET]
    run.console.print(
        f"Median over all {len(ratios)} cells: {median:.3f} (at most {CALL_TARGET}). "
        f"{len(slow)} cells are above {CALL_TARGET}, {len(surely)} of them in three quarters of "
        "the rounds:"
    )
    run.console.print(_slow_table(results, sorted(slow, key=ratios.get, reverse=True)))


def _grid_table(title: str, group: dict[Cell, CallTimes]) -> Table:
    table = Table(title=title, title_justify="left")
    lengths = sorted({cell.length for cell in group})
    table.add_column("rows", justify="right")
    for length in lengths:
        table.add_column(str(length), justify="right")
    by_shape = {(cell.rows, cell.length): times.over_best.median for cell, times in group.items()}
    for rows in sorted({cell.rows for cell in group}):
        ratios = [by_shape.get((rows, length)) for length in lengths]
        table.add_row(
            str(rows), *("" if r is None else _red_if(r > CALL_TARGET, f"{r:.2f}") for r in ratios)
        )
    return table


def _slow_table(results: dict[Cell, CallTimes], slow: list[Cell]) -> Table:
    table = Table()
    for heading in ("op", "dtype", "shape", "best peer"):
        table.add_column(heading, no_wrap=True)
    for heading in ("ours µs", "its µs", "ratio", "quartiles"):
        table.add_column(heading, justify="right")
    for cell in slow:
        times = results[cell]
        table.add_row(
            cell.label,
            DTYPES[cell.dtype],
            f"{cell.rows}x{cell.length}",
            times.best_peer,
            f"{times.seconds['ours'].median * 1e6:.4g}",
            f"{times.seconds[times.best_peer].median * 1e6:.4g}",
            f"{times.over_best.median:.3f}",
            "{:.3f}-{:.3f}".format(*times.over_best.quartiles),
        )
    return table


def _write_calls(run: Run, section: str, cell: Cell, times: CallTimes) -> None:
    for name, seconds in times.seconds.items():
        lower, upper = seconds.quartiles
        values = dict(us=seconds.median * 1e6, us_lower=lower * 1e6, us_upper=upper * 1e6)
        if name == "ours":
            ratio = times.over_best
            values |= dict(best_peer=times.best_peer, over_best_peer=ratio.median)
            values |= dict(zip(("over_lower", "over_upper"), ratio.quartiles, strict=True))
        run.write(
            section,
            cell,
            contestant=name,
            method="evals",
            gbps=cell.moved / seconds.median / 1e9,
            calls_an_eval=times.calls,
            rounds=len(seconds.values),
            **values,
        )


@contextlib.contextmanager
def _reported(run: Run, cell: Cell, name: str) -> Iterator[None]:
    """A peer that cannot do something is left out of that cell."""
    try:
        yield
    except Exception as error:
        if name in ("ours", "mx.fast"):
            raise
        run.console.print(f"{name} does not do {cell}: {error}", highlight=False)


def facts(peers: list[str]) -> dict[str, str]:
    return machine.facts() | {"driver": machine.driver_version()} | others.versions(peers)


SECTIONS: dict[str, Callable[[Run], None]] = {
    "kernels": lambda run: kernel_section(run, "kernels", run.cells([*LARGE, SHORT])),
    "backward": lambda run: kernel_section(run, "backward", run.cells(LARGE, backward=True)),
    "lengths": length_section,
    "calls": call_section,
}


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("sections", nargs="*", metavar="SECTION", help=f"of {', '.join(SECTIONS)}")
    parser.add_argument("--csv", metavar="FILE", help="write all figures with device and versions")
    parser.add_argument(
        "--peers", default="", metavar="NAMES", help="also time torch, liger or torch,liger"
    )
    parser.add_argument(
        "--rounds", type=int, default=5, help="samples of a cell in calls; three times for one row"
    )
    parser.add_argument("--device", choices=("gpu", "cpu"), default="gpu")
    args = parser.parse_args()
    if unknown := set(args.sections) - set(SECTIONS):
        parser.error(f"no section {', '.join(sorted(unknown))}")

    mx.set_default_device(mx.cpu if args.device == "cpu" else mx.gpu)
    mx.random.seed(0)
    console = Console()
    if not console.is_terminal:
        console = Console(width=120)
    names = filter(None, args.peers.split(","))
    peers = others.available(names, lambda line: console.print(line, highlight=False))
    run = Run(console, args.device == "cpu", peers, args.rounds, facts=facts(peers))
    console.print(", ".join(f"{key} {value}" for key, value in run.facts.items()))
    with contextlib.ExitStack() as stack:
        if args.csv:
            file = stack.enter_context(open(args.csv, "w", newline=""))
            run.writer = CsvFile(file, COLUMNS, run.facts)
        for name in args.sections or SECTIONS:
            start = time.perf_counter()
            SECTIONS[name](run)
            console.print(f"{name} took {time.perf_counter() - start:.0f} s.\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
