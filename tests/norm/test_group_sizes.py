"""Kernels declare the largest threadgroups that plans for Metal ask for.

Apple's compiler takes the number for a budget of registers: one too large costs registers, and a
launch beyond it is refused.
"""

import itertools
from math import prod

import mlx.core as mx
import pytest

import join
import mlx_norms
from metalsim import Library
from mlx_norms.ladders import LAYER_NORM, SGEMM, layer_norm, sgemm
from support.linear_case import case, most_rows
from support.rope_case import norm_rope

pytestmark = [pytest.mark.backends("metal-sim"), pytest.mark.usefixtures("backend")]

# How a row is shared out changes at powers of two and at three times those: they have the most
# threads of each kind.
LENGTHS = [n << k for k in range(14) for n in (2, 3)]
WIDTHS = (mx.float32, mx.float16)


def norms():
    for dtype in WIDTHS:
        for length in LENGTHS:
            x, w = mx.ones((1, length), dtype), mx.ones(length, dtype)
            yield [mlx_norms.layer_norm(x, w, w)]
            yield mx.vjp(mlx_norms.layer_norm, [x, w, w], [x])[1]
            yield mx.vjp(mlx_norms.rms_norm, [x, w], [x])[1]
            yield mx.vjp(mlx_norms.norm_add_norm, [x, x, w, w], [x, x])[1]
            yield [norm_rope(mx.ones((1, 1, 1, length), dtype), w, dims=2)]
        many, w = mx.ones((257 * 32, 4), dtype), mx.ones(4, dtype)  # rows of 257 loops
        yield mx.vjp(mlx_norms.rms_norm, [many, w], [many])[1]
        rows = mx.ones((2, 3, 2, 3, 2, 300), dtype).transpose(4, 1, 3, 0, 2, 5)[..., ::2]
        yield [mlx_norms.rms_norm(rows)]  # more axes than a layout holds


def group_norms():
    sizes = ((2, 8), (1 << 14, 8), (2, 1024), (128, 1024))  # from one partial sum to many
    for dtype, (positions, channels) in itertools.product(WIDTHS, sizes):
        x, w = mx.ones((1, positions, channels), dtype), mx.ones(channels, dtype)
        yield mx.vjp(lambda x, w: mlx_norms.group_norm(x, 2, w), [x, w], [x])[1]


def projections():
    for kind in (None, (4, 64), (8, 32)):
        for dtype in WIDTHS:
            for rows in range(1, most_rows(kind) + 1):
                for length in (128, 1 << 14):
                    yield case("rms_norm_linear", (rows, length), (5,), dtype, kinds=(kind,))()
    w = mx.quantize(mx.ones((5, 1 << 14)))
    for rows in (1, most_rows((4, 64)), 16):
        yield [mlx_norms.quantized_matmul(mx.ones((rows, 1 << 14)), *w)]


def products():
    for rows, depths in {range(1, 9): (128, 1 << 12), (32, 64): (64,)}.items():
        for m, k in itertools.product(rows, depths):
            yield [mlx_norms.matmul(mx.ones((m, k)), mx.ones((k, 64)))]
            yield [mlx_norms.matmul(mx.ones((m, k)), mx.ones((64, k)).T)]


def ladders():
    for rung in SGEMM:
        yield [sgemm(mx.ones((40, 40)), mx.ones((40, 40)), rung=rung.name)]
    for rung in LAYER_NORM[:-1]:  # but for ours
        for dtype in rung.dtypes:
            for length in LENGTHS:
                yield [layer_norm(mx.ones((1, length), dtype), rung=rung.name)]


def copies_of_rows():
    """Of arrays with more axes of rows than a layout holds."""
    for dtype in WIDTHS:
        x = mx.ones((2, 2, 2, 2, 2, 2048), dtype).transpose(3, 1, 4, 2, 0, 5)
        yield [mlx_norms.rms_norm(x)]


def test_the_largest_groups_are_declared(launches):
    used, declared = {}, {}
    calls = (norms(), group_norms(), copies_of_rows(), projections(), products(), ladders())
    for arrays in itertools.chain(*calls):
        for launch in launches(*arrays):
            used[launch.kernel] = max(used.get(launch.kernel, 0), prod(launch.group))
            declared[launch.kernel] = launch.max_threads
    assert used == declared
    for name, text in join.texts().items():
        kernels = set(Library.from_source(text, name=name).kernels())
        assert kernels <= used.keys() or not kernels & used.keys(), kernels - used.keys()
