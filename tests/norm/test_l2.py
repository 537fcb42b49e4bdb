"""l2_norm: the sum of squares, and eps as the least root or added under it."""

import itertools

import mlx.core as mx
import pytest

import mlx_norms
from support import inputs
from support.bits import assert_same_bits
from support.checks import check_with_gradients
from support.inputs import normal
from support.norm_case import DTYPES, Norm

pytestmark = pytest.mark.usefixtures("backend")

EITHER = pytest.mark.parametrize("inside", [False, True], ids=["bound", "inside"])


def l2(inside, eps=1e-6, **options):
    return Norm("l2_norm", eps=eps, eps_inside=inside, **options)


def x_of(shape, dtype, **options):
    return {"x": normal(shape, dtype, seed=shape, **options)}


@EITHER
def test_every_length(inside):
    lengths = (*range(1, 301, 7 if inputs.SLOW else 1), 768, 2048, 4097, 8192, 20000)
    for length, dtype in itertools.product(lengths, DTYPES):
        rows = (1, 3, 17)[length % 3] if length < 5000 else 2
        check_with_gradients(l2(inside), x_of((rows, length), dtype))


@pytest.mark.parametrize("eps", [1e-12, 1e-6, 1.0, 100.0])
@EITHER
def test_rows_about_eps(inside, eps):
    """Shorter and longer ones than eps, below which the root is constant."""
    for length, dtype in itertools.product((1, 7, 128, 1000), (mx.float32, mx.bfloat16)):
        x = normal((40, length), mx.float32, seed=length)
        x = x * mx.rsqrt((x * x).sum(-1, keepdims=True))
        factors = mx.array([eps * 1.3 ** (i - 19.5) for i in range(40)])[:, None]
        check_with_gradients(l2(inside, eps), {"x": (x * factors).astype(dtype)})


@pytest.mark.parametrize("length", [1, 64, 5000, 20000])
def test_rows_of_zeros(length):
    for dtype in DTYPES:
        x = mx.concatenate([mx.zeros((2, length)), mx.ones((1, length))]).astype(dtype)
        for inside in (False, True):
            check_with_gradients(l2(inside, 0.25), {"x": x})
        cotangent = normal(x.shape, dtype, seed=1)
        for options, factor in ((dict(), 4.0), (dict(eps_inside=True), 2.0)):
            _, (gradient,) = mx.vjp(
                lambda x, options=options: mlx_norms.l2_norm(x, 0.25, **options), [x], [cotangent]
            )
            wanted = cotangent.astype(mx.float32) * factor
            assert_same_bits(gradient[:2], wanted.astype(dtype)[:2], f"{options}")
    assert mx.all(mx.isnan(mlx_norms.l2_norm(mx.zeros((2, length)), 0.0)))


def test_second_derivative_of_zeros_is_finite():
    first = mx.grad(lambda x: (mlx_norms.l2_norm(x) * x).sum())
    assert mx.all(mx.isfinite(mx.grad(lambda x: first(x).sum())(mx.zeros((2, 8)))))
