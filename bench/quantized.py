"""quantized_matmul against MLX's own and a copy on a GPU: the matrices of an 8B llama.

They have 4 or 8 bits in groups of 64, are multiplied by 1 to 16 rows, and are used in turn, so that
none is in the cache. Shares are of the matrix, its scales and its biases at the speed of a copy,
which counts what it reads and writes. "alone" is a kernel that runs alone, as in decoding.

--residual adds one; MLX adds it in an op of its own. --dtypes float16 is stored, too.
"""

from __future__ import annotations

import argparse
import itertools
from collections.abc import Callable, Iterator

import mlx.core as mx

import mlx_norms
from gemv import CALLS
from harness import providers
from harness.configs import DTYPES
from harness.suite import Case, Suite
from ladder import copy

SHAPES = ((4096, 4096), (14336, 4096), (4096, 14336), (128256, 4096))
TINY = ((40, 64), (64, 128))
ROWS = (1, 2, 3, 4, 6, 8, 12, 16)
GROUP = 64
LEAST = 0.98  # of MLX's speed


def cases(args: argparse.Namespace) -> Iterator[Case]:
    shapes = TINY if args.tiny else SHAPES
    for values in itertools.product(args.dtypes.split(","), (4, 8), shapes, ROWS):
        yield case(*values, args.residual)


def weight_bytes(dtype: str, bits: int, outputs: int, depth: int) -> int:
    """Of what is packed, and of a scale and a bias per group."""
    elements = outputs * depth
    return elements * bits // 8 + 2 * elements // GROUP * DTYPES[dtype].size


def product(
    dtype: str, bits: int, weight: tuple[int, int], rows: int, residual: bool
) -> tuple[dict[str, Callable], list[mx.array]]:
    """Ours and MLX's, and their arrays."""
    (outputs, depth), form = weight, dict(group_size=GROUP, bits=bits)
    shapes = [(rows, depth), weight, *[(rows, outputs)] * residual]
    x, w, *added = (mx.random.normal(shape).astype(DTYPES[dtype]) for shape in shapes)

    def ours(x, w, scales, biases, *residual):
        added = dict(residual=residual[0]) if residual else {}
        return mlx_norms.quantized_matmul(x, w, scales, biases, **form, **added)

    def mlx(x, w, scales, biases, *residual):
        y = mx.quantized_matmul(x, w, scales, biases, **form)
        return y + residual[0] if residual else y

    return {"ours": ours, "mlx": mlx}, [x, *mx.quantize(w, **form), *added]


def case(dtype: str, bits: int, weight: tuple[int, int], rows: int, residual: bool) -> Case:
    of_bytes = weight_bytes(dtype, bits, *weight)

    def sides() -> dict:
        functions, arrays = product(dtype, bits, weight, rows, residual)
        output_bytes = rows * weight[0] * DTYPES[dtype].size
        sizes = dict(of_bytes=of_bytes, output_bytes=output_bytes, caches=providers.CACHES)
        return providers.in_turn(functions, arrays, **sizes)

    about = dict(zip(("dtype", "bits", "outputs", "depth"), (dtype, bits, *weight), strict=True))
    about |= dict(rows=rows, residual=residual)
    return Case(about, sides, of_bytes, least=dict(mlx=LEAST), count=CALLS)


def options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--dtypes", default="bfloat16", help="of bfloat16,float16,float32")
    parser.add_argument("--residual", action="store_true", help="add a residual")


LABELS = ("dtype", "bits", "outputs", "depth", "rows", "residual")
SUITE = Suite(__doc__, LABELS, cases, limit=lambda case, say: copy(say), options=options)
