"""Finds how threadgroups multiply quantized matrices fastest, by the matrix's shape, on CUDA.

Runs quantized_matmul with several numbers of SIMD-groups in a threadgroup, and prints the time over
that of the matrix's bytes at the speed of a copy in the same run: of calls that run alone, as they
do when decoding, and (--together) of independent ones that may overlap. "plan" is the choice of
csrc/linear/tiles_plan.cpp. The best of a row, and those within 1 % of it, are marked.

--device cpu tries the script, but says nothing about geometry.
"""

from __future__ import annotations

import itertools
from dataclasses import astuple

from harness import products
from harness.candidates import candidates, marked
from harness.script import Script
from harness.tables import table
from mlx_norms import _ext
from quantized import SHAPES, TINY, Product

SIMDS = (4, 8, 16)  # SIMD-groups
CLOSE = 1.01
SMALL = ((1024, 4096), (6144, 4096), (28672, 4096))  # k or v; q, k and v; gate and up

COLUMNS = ["dtype", "bits", "outputs", "depth", "rows", "residual", "simds", "us"]
COLUMNS += ["of_bytes", "of_best", "together_us", "method"]


def of_product(product: Product) -> dict:
    return candidates(product.providers()["ours"], _ext.set_product_simds, SIMDS)


def main() -> None:
    script = Script(__doc__, COLUMNS, rounds=5)
    add = script.parser.add_argument
    add("--dtypes", default="bfloat16", help="of bfloat16,float16,float32")
    add("--bits", default="4,8", help="of 4,8")
    add("--rows", default="1,8,16", help="numbers of rows")
    add("--together", action="store_true", help="of independent calls")
    args = script.begin()
    chosen = [
        Product(dtype, int(bits), *shape, int(rows), False)
        for dtype, bits, shape, rows in itertools.product(
            args.dtypes.split(","),
            args.bits.split(","),
            TINY if script.tiny else (*SMALL, *SHAPES),
            args.rows.split(","),
        )
    ]
    copy, times = products.measure(script, chosen, of_product, args.rounds)
    numbers = ("rows", "plan", *map(str, SIMDS))
    found = table("time over that of the bytes", ("dtype", "bits", "weight"), numbers)
    for product, of in times.items():
        us = {
            way: (time.together if args.together or not time.alone else time.alone).median * 1e6
            for way, time in of.items()
        }
        best, bytes_us = min(us.values()), product.weight_bytes / copy * 1e6
        texts = (marked(f"{us[w] / bytes_us:.2f}", us[w] <= CLOSE * best) for w in us)
        found.add_row(
            *(product.dtype, str(product.bits), f"{product.outputs}×{product.depth}"),
            *(str(product.rows), *texts),
        )
        for way, time in us.items():
            together = of[way].together.median * 1e6
            values = (way, time, time / bytes_us, time / best, together, of[way].method)
            script.write(*astuple(product), *values)
    script.console.print(found)
