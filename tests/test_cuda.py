"""What only the CUDA backend promises."""

import itertools

import mlx.core as mx
import pytest

import mlx_norms
import oracle
from bits import assert_same_bits
from checks import check_with_gradients
from inputs import arguments, cotangents, normal
from norm_case import DTYPES, OPS, Norm

pytestmark = [pytest.mark.cuda, pytest.mark.usefixtures("backend")]


@pytest.mark.parametrize("dtype", [mx.float16, mx.bfloat16], ids=["f16", "bf16"])
@pytest.mark.parametrize("rows", [1, 9, 700, 3000])
def test_rms_norm_of_4096_has_the_bits_of_mx_fast(rows, dtype):
    """So that models of that size decode the same tokens, patched or not."""
    x, residual = (normal((rows, 4096), dtype, seed=(0, i)) for i in range(2))
    weight = normal((4096,), dtype, seed=(0, 2))
    stock = mx.fast.rms_norm(x, weight, 1e-5)
    assert_same_bits(mlx_norms.rms_norm(x, weight), stock)
    stock = mx.fast.rms_norm(x + residual, weight, 1e-5)
    y, total = mlx_norms.add_rms_norm(x, residual, weight)
    assert_same_bits(y, stock)
    assert_same_bits(total, x + residual)


FEW, MANY = 33, 4100  # rows that a few multiprocessors walk, and that all of them do


@pytest.mark.parametrize("op", OPS)
@pytest.mark.parametrize("length", [1024, 1030])
def test_partial_sums_of_many_teams(op, length):
    """They are added up in clusters, which MLX may update no other launch's graph to."""
    norm = Norm(op)
    for dtype, rows in itertools.product(DTYPES, (FEW, MANY, FEW)):
        check_with_gradients(norm, arguments(norm, (rows, length), dtype))


@pytest.mark.parametrize("names", [("weight",), ("bias",), ("x", "bias")], ids="-".join)
def test_some_partial_sums_of_many_teams(names):
    norm = Norm("layer_norm")
    arrays = arguments(norm, (MANY, 1024), mx.float32)
    cots = cotangents(norm, arrays)
    truths = oracle.gradients(norm, arrays, *cots)

    def of(*some):
        return norm(arrays | dict(zip(names, some, strict=True)))

    _, gradients = mx.vjp(of, [arrays[name] for name in names], cots)
    for name, gradient in zip(names, gradients, strict=True):
        truths[name].check(gradient)
