"""Finds how threadgroups multiply quantized matrices fastest, by the matrix's shape, on CUDA.

Runs quantized_matmul with several numbers of SIMD-groups in a threadgroup, and prints the time over
that of the matrix's bytes at the speed of a copy in the same run: of calls that run alone, as they
do when decoding, and (--together) of independent ones that may overlap. "plan" is the choice of
csrc/linear/tiles_plan.cpp. The best of a row, and those within 1 % of it, are marked.

--device cpu tries the script, but says nothing about geometry.
"""

from __future__ import annotations

import itertools
import sys
from dataclasses import astuple, dataclass

from harness import device_copy, kernels
from harness.providers import Calls
from harness.script import Script
from harness.tables import table
from mlx_norms import _ext
from quantized import CALLS, COPY_BYTES, SHAPES, TINY, Product

WAYS = BY_PLAN, *_ = (0, 4, 8, 16)  # SIMD-groups
CLOSE = 1.01
SMALL = ((1024, 4096), (6144, 4096), (28672, 4096))  # k or v; q, k and v; gate and up

COLUMNS = ["dtype", "bits", "outputs", "depth", "rows", "residual", "simds", "us"]
COLUMNS += ["of_bytes", "of_best", "together_us", "method"]


@dataclass(frozen=True)
class Candidate:
    """The calls of a product with a number of SIMD-groups."""

    calls: Calls
    simds: int

    def prepare(self, count: int) -> list:
        return self.calls.prepare(count)

    def finish(self, pending: list, *, alone: bool = False) -> None:
        _ext.set_product_simds(self.simds)
        self.calls.finish(pending, alone=alone)
        _ext.set_product_simds(BY_PLAN)


def candidates(product: Product) -> dict[int, Candidate]:
    calls = product.providers()["ours"]
    return {way: Candidate(calls, way) for way in WAYS}


def main() -> int:
    script = Script(__doc__, COLUMNS, rounds=5)
    add = script.parser.add_argument
    add("--dtypes", default="bfloat16", help="of bfloat16,float16,float32")
    add("--bits", default="4,8", help="of 4,8")
    add("--rows", default="1,8,16", help="numbers of rows")
    add("--together", action="store_true", help="of independent calls")
    args = script.begin()
    products = [
        Product(dtype, int(bits), *shape, int(rows), False)
        for dtype, bits, shape, rows in itertools.product(
            args.dtypes.split(","),
            args.bits.split(","),
            TINY if script.tiny else (*SMALL, *SHAPES),
            args.rows.split(","),
        )
    ]
    copy = device_copy.rate(COPY_BYTES >> 10 if script.tiny else COPY_BYTES, script.say)
    times = kernels.measure(
        products,
        candidates,
        lambda p: 4 if script.tiny else CALLS,
        rounds=args.rounds,
        say=script.say,
    )
    ways = sorted({way for of in times.values() for way in of} - {BY_PLAN})
    names = map(str, ways)
    numbers = ("rows", "plan", *names)
    found = table("time over that of the bytes", ("dtype", "bits", "weight"), numbers)
    for product, of in times.items():
        us = {
            way: (time.together if args.together or not time.alone else time.alone).median * 1e6
            for way, time in of.items()
        }
        best, bytes_us = min(us.values()), product.weight_bytes / copy * 1e6
        texts = []
        for way in (BY_PLAN, *ways):
            text = f"{us[way] / bytes_us:.2f}" if way in us else ""
            close = way in us and us[way] <= CLOSE * best
            texts.append(f"[bold green]{text}*[/bold green]" if close else text)
        found.add_row(
            *(product.dtype, str(product.bits), f"{product.outputs}×{product.depth}"),
            *(str(product.rows), *texts),
        )
        for way, time in us.items():
            together = of[way].together.median * 1e6
            values = (way, time, time / bytes_us, time / best, together, of[way].method)
            script.write(*astuple(product), *values)
    script.console.print(found)
    return 0


if __name__ == "__main__":
    sys.exit(main())
