"""gemv against MLX's own matmul and a copy on a GPU: matmuls of 1 to 8 rows.

The weight is N×K, stored as a linear layer stores it ("lines") or transposed ("columns"). Weights
are used in turn, so that none is in the cache. Shares count the weight, which must be read once.
On the CPU mx.matmul is in the place of the kernel.
"""

from __future__ import annotations

import argparse
import itertools
from collections.abc import Iterator

import mlx.core as mx

import mlx_norms
from harness import providers
from harness.configs import DTYPES
from harness.suite import Case, Suite
from ladder import copy

SHAPES = ((4096, 4096), (14336, 4096), (4096, 14336), (1024, 4096))
TINY = ((40, 64), (64, 40))
ROWS = (1, 2, 3, 4, 5, 6, 7, 8)
LEAST = 0.95  # of mx.matmul's speed
CALLS = 32  # evaluated together


def cases(args: argparse.Namespace) -> Iterator[Case]:
    dtypes = DTYPES if args.all_dtypes else ["bfloat16"]
    shapes = TINY if args.tiny else SHAPES
    for values in itertools.product(dtypes, shapes, ("lines", "columns"), ROWS):
        yield case(*values, tiny=args.tiny)


def case(dtype: str, weight: tuple[int, int], stored: str, rows: int, *, tiny: bool) -> Case:
    outputs, depth = weight
    lines, size = stored == "lines", DTYPES[dtype].size

    def ours(x, w):
        w = w.T if lines else w
        return x @ w if tiny else mlx_norms.matmul(x, w, kernel="gemv")

    def sides() -> dict:
        shapes = (rows, depth), weight if lines else weight[::-1]
        return providers.in_turn(
            {"ours": ours, "mlx": lambda x, w: mx.matmul(x, w.T if lines else w)},
            [mx.random.normal(shape).astype(DTYPES[dtype]) for shape in shapes],
            of_bytes=outputs * depth * size,
            output_bytes=rows * outputs * size,
            caches=providers.CACHES,
        )

    about = dict(dtype=dtype, outputs=outputs, depth=depth, stored=stored, rows=rows)
    return Case(about, sides, outputs * depth * size, least=dict(mlx=LEAST), count=CALLS)


def options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--all-dtypes", action="store_true", help="not bfloat16 alone")


SUITE = Suite(
    __doc__,
    ("dtype", "outputs", "depth", "stored", "rows"),
    cases,
    limit=lambda case, say: copy(say),
    options=options,
)
