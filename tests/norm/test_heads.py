"""Norms of heads, whose rows may have a weight and a bias for each head."""

import itertools

import mlx.core as mx
import pytest

import mlx_norms
from support.bits import assert_same_bits
from support.checks import check_with_gradients
from support.inputs import normal, unless_slow
from support.norm_case import DTYPES, Norm

pytestmark = pytest.mark.usefixtures("backend")

HEAD_DIMS = (1, 33, 64, 80, 128, 256)


def heads(shape, dtype, weight, weight_dtype, seed=0, *, bias=None):
    """x, and a weight shared by all heads, one for each, or none; likewise a bias."""
    arrays = {"x": normal(shape, dtype, seed=(seed, 0))}
    for i, (name, of) in enumerate({"weight": weight, "bias": bias}.items()):
        if of is not None:
            own = shape[-1:] if of == "shared" else shape[-2:]
            arrays[name] = normal(own, weight_dtype, seed=(seed, 1 + i))
    return arrays


@pytest.mark.parametrize("weight", [None, "shared", "each"])
def test_rms_norm(weight):
    shapes = [(2, 5, 4), (3, 1), (4,), (0, 4), (2, 0), (1, 7, 12)]
    for shape, dim, dtype in itertools.product(shapes, HEAD_DIMS, DTYPES):
        check_with_gradients(Norm("rms_norm"), heads((*shape, dim), dtype, weight, dtype))
    for x, w in itertools.permutations(DTYPES, 2):
        check_with_gradients(Norm("rms_norm"), heads((3, 4, 65), x, weight, w))


KINDS = [None, "shared", "each"]


@pytest.mark.parametrize("bias", KINDS)
@pytest.mark.parametrize("weight", KINDS)
def test_layer_norm(weight, bias):
    norm = Norm("layer_norm")
    for shape, dim, dtype in itertools.product(
        [(2, 5, 4), (4,), (0, 4), (2, 0)], HEAD_DIMS, DTYPES
    ):
        check_with_gradients(norm, heads((*shape, dim), dtype, weight, dtype, bias=bias))
    for x, w in itertools.permutations(DTYPES, 2):
        check_with_gradients(norm, heads((3, 4, 65), x, weight, w, bias=bias))


@pytest.mark.parametrize("bias", ["shared", "each"])
@pytest.mark.parametrize("weight", ["shared", "each"])
def test_parameters_for_each_head_are_layer_norm_head_by_head(weight, bias):
    for dtype in DTYPES:
        x, w, b = heads((2, 5, 4, 65), dtype, weight, mx.float32, bias=bias).values()
        y = mlx_norms.layer_norm(x, w, b)
        for h in range(4):
            of = (a[h] if a.ndim > 1 else a for a in (w, b))
            assert_same_bits(y[:, :, h], mlx_norms.layer_norm(x[:, :, h], *of), f"{dtype}, {h}")


@pytest.mark.parametrize("rows", [1, 15, 16, 17, 129])
@pytest.mark.parametrize("weight", ["shared", "each"])
def test_rows_of_persistent_loops(weight, rows):
    """Each loop's are of one head, and the last ones' of each are fewer."""
    norm = Norm("rms_norm")
    for (dim, n), dtype in itertools.product([(33, 3), (128, 4), (1000, 2)], DTYPES):
        check_with_gradients(norm, heads((rows, n, dim), dtype, weight, dtype))


@pytest.mark.parametrize("weight", ["shared", "each"])
def test_rows_that_threads_share(weight):
    """So many that sums are taken by blocks, which begin at any head."""
    rows = 3001 if unless_slow(True) else 31
    check_with_gradients(Norm("rms_norm"), heads((rows, 3, 65), mx.float32, weight, mx.float32))


def test_weight_for_each_head_is_rms_norm_head_by_head():
    for dtype in DTYPES:
        x, w = heads((2, 5, 4, 65), dtype, "each", mx.float32).values()
        y = mlx_norms.rms_norm(x, w, 1e-5)
        for h in range(4):
            alone = mlx_norms.rms_norm(x[:, :, h], w[h], 1e-5)
            assert_same_bits(y[:, :, h], alone, f"{dtype}, head {h}")


@pytest.mark.parametrize("weight", [None, "shared", "each"])
def test_rms_norms_is_rms_norm_of_each(weight):
    for (hq, hk), dim, dtype in itertools.product([(8, 2), (4, 4), (1, 3)], (33, 64, 128), DTYPES):
        for options in ({}, dict(weight_offset=1.0), dict(rounding="late"), dict(dtype=mx.float32)):
            if weight is None and "weight_offset" in options:
                continue
            q, *wq = heads((2, 5, hq, dim), dtype, weight, dtype, 1).values()
            k, *wk = heads((2, 7, hk, dim), dtype, weight, mx.float32, 2).values()
            weights = (wq[0], wk[0]) if weight else (None, None)
            both = mlx_norms.rms_norms([q, k], weights, 1e-6, **options)
            for got, x, w in zip(both, (q, k), weights, strict=True):
                note = f"{hq} and {hk} heads of {dim}, {dtype}, {options}"
                assert_same_bits(got, mlx_norms.rms_norm(x, w, 1e-6, **options), note)
