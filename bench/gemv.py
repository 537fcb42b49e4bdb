"""Times gemv against MLX's own matmul and a device-to-device copy on a GPU, in one run.

The matmuls are of 1 to 8 rows with a weight of N×K, stored as a linear layer stores it ("lines") or
transposed ("columns"). Weights are used in turn, so that none is in the cache. The providers take
turns, too; "mlx / ours" is the time of mx.matmul over ours, round by round, with quartiles. GB/s
count the weight, which must be read once; their share is relative to what a copy reads and writes
in the same run. "together" is the device's busy time per call while independent calls are evaluated
together; "alone" is that of a call that is evaluated by itself.

Times are CUPTI's, by torch's profiler, if torch is installed, or else the slope of the time of
evals over the number of calls in them. --device cpu tries the script at tiny shapes, with mx.matmul
in place of the kernel.
"""

from __future__ import annotations

import itertools
from dataclasses import astuple, dataclass

import mlx.core as mx

import mlx_norms
from harness import products
from harness.configs import DTYPES
from harness.providers import Calls
from harness.script import Script
from harness.tables import red_if, table

SHAPES = ((4096, 4096), (14336, 4096), (4096, 14336), (1024, 4096))
TINY = ((40, 64), (64, 40))
ROWS = (1, 2, 3, 4, 5, 6, 7, 8)
STORED = ("lines", "columns")
TARGET = 0.95  # of mx.matmul's speed

COLUMNS = ["dtype", "outputs", "depth", "stored", "rows", "method", "us", "mlx_us", "mlx_over_ours"]
COLUMNS += ["over_lower", "over_upper", "alone_us", "mlx_alone_us", "gbps", "of_copy"]
COLUMNS += ["mlx_of_copy", "copy_gbps", "kernels_per_call", "mlx_kernels_a_call", "rounds"]


@dataclass(frozen=True)
class Product:
    """A matmul of some rows with a weight."""

    dtype: str
    outputs: int
    depth: int
    stored: str
    rows: int

    @property
    def weight_bytes(self) -> int:
        return self.outputs * self.depth * DTYPES[self.dtype].size

    def providers(self, tiny: bool) -> dict[str, Calls]:
        """Ours and MLX's, on the same arrays in turn."""
        shape, lines = (self.outputs, self.depth), self.stored == "lines"
        shapes = (self.rows, self.depth), shape if lines else shape[::-1]
        inputs = [mx.random.normal(shape).astype(DTYPES[self.dtype]) for shape in shapes]

        def mlx(x, w):
            return mx.matmul(x, w.T if lines else w)

        def ours(x, w):
            return mlx_norms.matmul(x, w.T if lines else w, kernel="gemv")

        return products.calls(
            inputs,
            {"ours": mlx if tiny else ours, "mlx": mlx},
            weight_bytes=self.weight_bytes,
            output_bytes=self.rows * self.outputs * DTYPES[self.dtype].size,
        )


def main() -> None:
    script = Script(__doc__, COLUMNS, rounds=9)
    add = script.parser.add_argument
    add("--dtypes", default="bfloat16", help="of bfloat16,float16,float32")
    add("--stored", default=",".join(STORED), help="of lines,columns")
    add("--rows", default=",".join(map(str, ROWS)), help="numbers of rows")
    args = script.begin()
    shapes = TINY if script.tiny else SHAPES
    lists = (args.dtypes.split(","), shapes, args.stored.split(","), args.rows.split(","))
    chosen = [
        Product(dtype, *shape, stored, int(rows))
        for dtype, shape, stored, rows in itertools.product(*lists)
    ]
    providers = lambda product: product.providers(script.tiny)  # noqa: E731
    copy, times = products.measure(script, chosen, providers, args.rounds)
    numbers = ("rows", "ours µs", "mlx µs", "mlx / ours (quartiles)", "alone: mlx / ours", "GB/s")
    numbers += ("of copy", "mlx of copy", "by")
    found = table("gemv against mx.matmul", ("dtype", "weight", "stored"), numbers)
    missed = 0
    for product, (ours, mlx) in ((product, of.values()) for product, of in times.items()):
        ratio = mlx.together.over(ours.together)
        us, mlx_us = (time.together.median * 1e6 for time in (ours, mlx))
        alone = [time.alone.median * 1e6 if time.alone else "" for time in (ours, mlx)]
        rate, mlx_rate = (product.weight_bytes / time.together.median for time in (ours, mlx))
        missed += (slow := ratio.median < TARGET)
        found.add_row(
            *(product.dtype, f"{product.outputs}×{product.depth}", product.stored),
            *(str(product.rows), f"{us:.2f}", f"{mlx_us:.2f}", red_if(slow, ratio.spread(".3f"))),
            f"{mlx.alone.over(ours.alone).median:.3f}" if ours.alone else "",
            *(f"{rate / 1e9:.0f}", f"{rate / copy:.1%}", f"{mlx_rate / copy:.1%}", ours.method),
        )
        values = (ours.method, us, mlx_us, *ratio.figures(), *alone, rate / 1e9)
        values += (rate / copy, mlx_rate / copy, copy / 1e9, ours.kernels or "", mlx.kernels or "")
        script.write(*astuple(product), *values, args.rounds)
    script.console.print(found)
    script.say(f"{missed} of {len(chosen)} products are under {TARGET} of mx.matmul's speed.")
