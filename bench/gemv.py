"""Times gemv against MLX's own matmul and a device-to-device copy on a GPU, in one run.

Products of 1 to 8 rows with a weight of N×K: stored so, as a linear layer has it ("lines"), or
transposed ("columns"). Weights are taken in turn, so that none is in the cache. The contestants
take turns, too; "mlx / ours" is the time of mx.matmul over ours, round by round, with quartiles.
GB/s are those of the weight, which must be read once, and their share is of what a copy reads and
writes in the same run. "together" is the time that the device is busy, a call, while independent
calls are evaluated together; "alone" is a call's that is evaluated by itself.

Times are CUPTI's, by torch's profiler, where torch is there, else the slope of the time of evals
over the number of calls in them. --device cpu tries the script at tiny shapes, with mx.matmul in
the kernel's place.
"""

from __future__ import annotations

import argparse
import contextlib
import itertools
import sys
from dataclasses import dataclass

import mlx.core as mx
from rich.console import Console
from rich.table import Table

import mlx_norms
from mlx_norms._bench import contestants, device_copy, machine, timing
from mlx_norms._bench.cells import DTYPES
from mlx_norms._bench.kernel_times import Clock, Trace
from mlx_norms._bench.results import CsvFile

SHAPES = ((4096, 4096), (14336, 4096), (4096, 14336), (1024, 4096))
TINY = ((40, 64), (64, 40))
ROWS = (1, 2, 3, 4, 5, 6, 7, 8)
STORED = ("lines", "columns")
TARGET = 0.95  # of mx.matmul's speed
CALLS = 32  # evaluated together
COPY_BYTES = 1 << 30
CACHES = 8  # whose worth of weights is taken in turn: of two, some stays in the cache

COLUMNS = ["dtype", "outputs", "depth", "stored", "rows", "method", "us", "mlx_us", "mlx_over_ours"]
COLUMNS += ["over_lower", "over_upper", "alone_us", "mlx_alone_us", "gbps", "of_copy"]
COLUMNS += ["mlx_of_copy", "copy_gbps", "kernels_a_call", "mlx_kernels_a_call", "rounds"]


@dataclass(frozen=True)
class Product:
    """Rows times a weight."""

    dtype: str
    outputs: int
    depth: int
    stored: str
    rows: int

    @property
    def weight_bytes(self) -> int:
        return self.outputs * self.depth * DTYPES[self.dtype].size

    def sets(self) -> int:
        return contestants.sets_needed(self.weight_bytes, caches=CACHES)

    def inputs(self) -> list[mx.array]:
        shape = (self.outputs, self.depth)
        shapes = (self.rows, self.depth), shape if self.stored == "lines" else shape[::-1]
        return [mx.random.normal(shape).astype(DTYPES[self.dtype]) for shape in shapes]

    def contestants(self, ours) -> dict[str, contestants.Calls]:
        """Ours and MLX's, of the same arrays in turn."""
        sets = contestants.copies(self.inputs(), self.sets())
        output = self.rows * self.outputs * DTYPES[self.dtype].size

        def of_weight(multiply):
            lines = self.stored == "lines"
            return lambda x, w: multiply(x, w.T if lines else w)

        functions = {"ours": of_weight(ours), "mlx": of_weight(mx.matmul)}
        return {
            name: contestants.Calls(function, sets, None, output)
            for name, function in functions.items()
        }


def gemv(a: mx.array, b: mx.array) -> mx.array:
    return mlx_norms.matmul(a, b, kernel="gemv")


def measure(products, ours, rounds: int, calls: int) -> dict:
    """The KernelTime of each product, contestant and round: by CUPTI where it sees the kernels."""
    found = {}
    on_gpu = mx.default_device() != mx.cpu
    for cupti in (True, False) if on_gpu and Trace.available() else (False,):
        with Clock(cupti) as clock:
            for product in products:
                if (product, "ours", 0) in found:
                    continue
                contestants.make_room()
                contest = product.contestants(ours)
                for turn in range(rounds):
                    names = list(contest) if turn % 2 == 0 else list(reversed(contest))
                    for name in names:
                        clock.measure((product, name, turn), contest[name], calls)
        found |= clock.times
    return found


def report(console: Console, writer: CsvFile | None, products, times, rounds: int, copy) -> None:
    table = Table(title="gemv against mx.matmul", title_justify="left")
    for heading in ("dtype", "weight", "stored"):
        table.add_column(heading, no_wrap=True)
    headings = ("rows", "ours µs", "mlx µs", "mlx / ours", "quartiles", "alone: mlx / ours")
    for heading in (*headings, "GB/s", "of copy", "mlx of copy", "by"):
        table.add_column(heading, justify="right")
    missed = 0
    for product in products:
        of = {
            name: [times[product, name, turn] for turn in range(rounds)] for name in ("ours", "mlx")
        }
        together = {n: timing.Samples(tuple(t.together for t in ts)) for n, ts in of.items()}
        ratio = together["mlx"].over(together["ours"])
        alone = {}
        if all(time.alone for ts in of.values() for time in ts):
            alone = {n: timing.Samples(tuple(t.alone for t in ts)) for n, ts in of.items()}
        rate = {name: product.weight_bytes / samples.median for name, samples in together.items()}
        slow = ratio.median < TARGET
        missed += slow
        lower, upper = ratio.quartiles
        median = f"{ratio.median:.3f}"
        table.add_row(
            product.dtype,
            f"{product.outputs}×{product.depth}",
            product.stored,
            str(product.rows),
            *(f"{together[name].median * 1e6:.2f}" for name in ("ours", "mlx")),
            f"[red]{median}[/red]" if slow else median,
            f"{lower:.3f}-{upper:.3f}",
            f"{alone['mlx'].over(alone['ours']).median:.3f}" if alone else "",
            f"{rate['ours'] / 1e9:.0f}",
            *(f"{rate[name] / copy:.1%}" for name in ("ours", "mlx")),
            of["ours"][0].method,
        )
        if writer:
            writer.write(
                dict(
                    dtype=product.dtype,
                    outputs=product.outputs,
                    depth=product.depth,
                    stored=product.stored,
                    rows=product.rows,
                    method=of["ours"][0].method,
                    us=together["ours"].median * 1e6,
                    mlx_us=together["mlx"].median * 1e6,
                    mlx_over_ours=ratio.median,
                    over_lower=lower,
                    over_upper=upper,
                    alone_us=alone["ours"].median * 1e6 if alone else "",
                    mlx_alone_us=alone["mlx"].median * 1e6 if alone else "",
                    gbps=rate["ours"] / 1e9,
                    of_copy=rate["ours"] / copy,
                    mlx_of_copy=rate["mlx"] / copy,
                    copy_gbps=copy / 1e9,
                    kernels_a_call=of["ours"][0].kernels or "",
                    mlx_kernels_a_call=of["mlx"][0].kernels or "",
                    rounds=rounds,
                )
            )
    console.print(table)
    console.print(f"{missed} of {len(products)} products are under {TARGET} of mx.matmul's speed.")


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--csv", metavar="FILE", help="write all figures with device and versions")
    parser.add_argument("--dtypes", default="bfloat16", help="of bfloat16,float16,float32")
    parser.add_argument("--stored", default=",".join(STORED), help="of lines,columns")
    parser.add_argument("--rows", default=",".join(map(str, ROWS)), help="numbers of rows")
    parser.add_argument("--rounds", type=int, default=3, help="turns of each contestant")
    parser.add_argument("--device", choices=("gpu", "cpu"), default="gpu")
    args = parser.parse_args()
    tiny = args.device == "cpu"
    mx.set_default_device(mx.cpu if tiny else mx.gpu)
    mx.random.seed(0)
    products = [
        Product(dtype, *shape, stored, int(rows))
        for dtype, shape, stored, rows in itertools.product(
            args.dtypes.split(","),
            TINY if tiny else SHAPES,
            args.stored.split(","),
            args.rows.split(","),
        )
    ]
    console = Console()
    if not console.is_terminal:
        console = Console(width=140)
    facts = machine.facts() | {"driver": machine.driver_version()}
    console.print(", ".join(f"{key} {value}" for key, value in facts.items()))
    size = COPY_BYTES >> 10 if tiny else COPY_BYTES
    copy = 2 * size / device_copy.measure(size).median
    console.print(f"A copy of {size / 2**20:.4g} MiB: {copy / 1e9:.0f} GB/s.", highlight=False)
    with contextlib.ExitStack() as stack:
        writer = None
        if args.csv:
            file = stack.enter_context(open(args.csv, "w", newline=""))
            writer = CsvFile(file, COLUMNS, facts)
        times = measure(products, mx.matmul if tiny else gemv, args.rounds, 4 if tiny else CALLS)
        report(console, writer, products, times, args.rounds, copy)
    return 0


if __name__ == "__main__":
    sys.exit(main())
