"""Calls of quantized_matmul for cuda_cases.py, on as few lines as that takes."""

import itertools
from collections.abc import Callable, Iterator

import mlx.core as mx

from linear import test_quantized_matmul
from linear.test_quantized_matmul import KINDS, moved, weight
from mlx_norms import _ext
from support.inputs import normal
from support.norm_case import DTYPES
from support.quantized_case import Product

ROWS = (1, 7, 16)
# A threadgroup has 32 lines. Of a length, the last step may be a part of one.
LINES = (5, 17, 33, 40)
LENGTHS = (4096, 11008)
ODD_GROUPS = (1, 3, 7, 33)
SIMDS = (4, 8, 16)
BY_PLAN = 0
LAYOUTS = ("layouts", "residual", "long_rows", "arrays_that_are_not_aligned")


def cases() -> Iterator[tuple[str, Callable[[], None]]]:
    for (bits, group), dtype in itertools.product(KINDS, DTYPES):
        kind = bits, group
        name = f"quantized_matmul, {bits} bits in groups of {group}, {dtype}"
        yield name, lambda: products(kind, dtype)
        yield f"{name}, not aligned", lambda: not_aligned(kind, dtype)
        yield f"{name}, sizes", lambda: test_quantized_matmul.test_sizes(check, dtype, kind)
    for (i, simds), rows in itertools.product(enumerate(SIMDS), (7, 16)):
        kind, dtype = KINDS[i % len(KINDS)], DTYPES[i % len(DTYPES)]
        name = f"quantized_matmul, {simds} SIMD-groups, {rows} rows"
        yield name, lambda: by(simds, rows, kind, dtype)
    for layout in LAYOUTS:
        test = getattr(test_quantized_matmul, f"test_{layout}")
        yield f"quantized_matmul, {layout}", lambda: test(check)


def check(x, w, residual=None, note=""):
    product = Product(x, w, residual)
    product.truth("cpu" if mx.default_device() == mx.cpu else "cuda", note).check(product())


def product(rows, lines, length, dtype, kind, *, adds):
    residual = normal((rows, lines), dtype, seed="r") if adds else None
    check(normal((rows, length), dtype, seed=rows), weight(lines, length, dtype, kind), residual)


def products(kind, dtype):
    lengths = (*LENGTHS, *(n * kind[1] for n in ODD_GROUPS))
    for i, (rows, length) in enumerate(itertools.product(ROWS, lengths)):
        # All numbers of rows have some with a residual, as all lengths do.
        adds = (i + i // len(lengths)) % 2 == 0
        product(rows, LINES[i % len(LINES)], length, dtype, kind, adds=adds)


def not_aligned(kind, dtype):
    for rows, groups in itertools.product(ROWS, (3, 32)):
        length = groups * kind[1]
        w = weight(21, length, dtype, kind)
        w.parts = [moved(part) for part in w.parts]
        mx.eval(w.parts)
        x = normal((2 * rows, length + 1), dtype, seed=rows)
        check(x[::2, 1:], w, moved(normal((rows, 21), dtype, seed="r")))


def by(simds, rows, kind, dtype):
    _ext.set_product_simds(simds)
    try:
        for length, adds in ((11008, True), (33 * kind[1], False)):
            product(rows, 77, length, dtype, kind, adds=adds)
    finally:
        _ext.set_product_simds(BY_PLAN)
