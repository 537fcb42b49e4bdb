"""Times quantized_matmul against MLX's own and a device-to-device copy on a GPU, in one run.

The matrices are those of an 8B llama: 4 or 8 bits in groups of 64, multiplied by 1 to 16 rows. They
are used in turn, so that none is in the cache. The providers take turns, too; "mlx / ours" is the
time of mx.quantized_matmul over ours, round by round, with quartiles. "of bytes" is the time over
that of the matrix, its scales and its biases at the speed of a copy in the same run, which counts
what it reads and writes; "of 1 row" the time over ours of one row. Times are of a kernel that runs
alone, as in decoding, by CUPTI (torch's profiler), if torch is installed; "together" of independent
calls in one eval, per call, by CUPTI or else by the slope of the time over the number of calls.

--residual adds one; MLX adds it in an op of its own. --device cpu tries the script at tiny shapes.
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

SHAPES = ((4096, 4096), (14336, 4096), (4096, 14336), (128256, 4096))
TINY = ((40, 64), (64, 128))
ROWS = (1, 2, 3, 4, 6, 8, 12, 16)
GROUP = 64
SLOWER = 0.98  # of MLX's speed

COLUMNS = ["dtype", "bits", "outputs", "depth", "rows", "residual", "method", "us", "mlx_us"]
COLUMNS += ["mlx_over_ours", "over_lower", "over_upper", "of_bytes", "mlx_of_bytes", "of_one_row"]
COLUMNS += ["together_us", "mlx_together_us", "together_over", "together_lower", "together_upper"]
COLUMNS += ["copy_gbps", "kernels_per_call", "mlx_kernels_a_call", "rounds"]


@dataclass(frozen=True)
class Product:
    """Some rows times a quantized matrix."""

    dtype: str
    bits: int
    outputs: int
    depth: int
    rows: int
    residual: bool

    @property
    def weight_bytes(self) -> int:
        """Of what is packed, and of a scale and a bias per group."""
        elements = self.outputs * self.depth
        return elements * self.bits // 8 + 2 * elements // GROUP * DTYPES[self.dtype].size

    def providers(self) -> dict[str, Calls]:
        """Ours and MLX's, on the same arrays in turn."""
        dtype = DTYPES[self.dtype]
        weight = mx.random.normal((self.outputs, self.depth)).astype(dtype)
        inputs = [mx.random.normal((self.rows, self.depth)).astype(dtype)]
        inputs += mx.quantize(weight, GROUP, self.bits)
        if self.residual:
            inputs.append(mx.random.normal((self.rows, self.outputs)).astype(dtype))
        form = dict(group_size=GROUP, bits=self.bits)

        def ours(x, w, scales, biases, *residual):
            added = dict(residual=residual[0]) if residual else {}
            return mlx_norms.quantized_matmul(x, w, scales, biases, **form, **added)

        def mlx(x, w, scales, biases, *residual):
            y = mx.quantized_matmul(x, w, scales, biases, **form)
            return y + residual[0] if residual else y

        sizes = dict(weight_bytes=self.weight_bytes)
        sizes |= dict(output_bytes=self.rows * self.outputs * dtype.size)
        return products.calls(inputs, {"ours": ours, "mlx": mlx}, **sizes)


def main() -> None:
    script = Script(__doc__, COLUMNS, rounds=9)
    add = script.parser.add_argument
    add("--dtypes", default="bfloat16", help="of bfloat16,float16,float32")
    add("--bits", default="4,8", help="of 4,8")
    add("--rows", default=",".join(map(str, ROWS)), help="numbers of rows")
    add("--shapes", help="outputs×depth of the weights, as in 4096x4096,1024x4096")
    add("--residual", action="store_true", help="add a residual")
    args = script.begin()
    shapes = TINY if script.tiny else SHAPES
    if args.shapes:
        shapes = [tuple(map(int, shape.split("x"))) for shape in args.shapes.split(",")]
    chosen = [
        Product(dtype, int(bits), *shape, int(rows), args.residual)
        for dtype, bits, shape, rows in itertools.product(
            args.dtypes.split(","), args.bits.split(","), shapes, args.rows.split(",")
        )
    ]
    copy, times = products.measure(script, chosen, Product.providers, args.rounds)
    numbers = ("rows", "ours µs", "mlx µs", "mlx / ours (quartiles)", "of bytes", "mlx of bytes")
    together = ("of 1 row", "together µs", "mlx / ours (quartiles)", "of bytes", "by")
    found = table(
        "quantized_matmul against MLX's",
        ("dtype", "bits", "weight"),
        (*numbers, *together),
    )
    slower, one_row = 0, {}
    for product, of in times.items():
        ours, mlx = of["ours"], of["mlx"]
        pairs = [(ours.together, mlx.together)]
        pairs.insert(0, (ours.alone, mlx.alone) if ours.alone else pairs[0])
        (us, mlx_us), (each, mlx_each) = ([1e6 * t.median for t in pair] for pair in pairs)
        ratio, of_each = (its.over(mine) for mine, its in pairs)
        bytes_us = product.weight_bytes / copy * 1e6
        matrix = (product.dtype, product.bits, product.outputs, product.depth)
        if product.rows == 1:
            one_row[matrix] = us
        of_one = us / one_row[matrix] if matrix in one_row else None
        slower += (slow := min(ratio.median, of_each.median) < SLOWER)
        found.add_row(
            *(product.dtype, str(product.bits), f"{product.outputs}×{product.depth}"),
            *(str(product.rows), f"{us:.2f}", f"{mlx_us:.2f}", red_if(slow, ratio.spread(".3f"))),
            *(f"{us / bytes_us:.2f}", f"{mlx_us / bytes_us:.2f}"),
            *(f"{of_one:.2f}" if of_one else "", f"{each:.2f}", of_each.spread(".3f")),
            *(f"{each / bytes_us:.2f}", ours.method),
        )
        values = (ours.method, us, mlx_us, *ratio.figures(), us / bytes_us)
        values += (mlx_us / bytes_us, of_one or "", each, mlx_each)
        values += (*of_each.figures(), copy / 1e9, ours.kernels or "")
        script.write(*astuple(product), *values, mlx.kernels or "", args.rounds)
    script.console.print(found)
    script.say(f"{slower} of {len(chosen)} products are under {SLOWER} of MLX's speed.")
