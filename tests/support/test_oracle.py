"""The oracle itself: its digits, its bounds, and its ulps, which are those of NumPy."""

import math

import mlx.core as mx
import numpy as np
import pytest

from mlx_norms._table import OPS, exact
from support import oracle
from support.inputs import normal
from support.norm_case import Norm
from support.table import arrays_of, cotangents_of


@pytest.mark.parametrize("op", OPS.values(), ids=str)
def test_errors_are_relative_to_more_than_the_gradient(op, on_the_cpu):
    arrays = arrays_of(op, mx.float32)
    cots = cotangents_of(op.ours()(*arrays))
    for name, (value, size) in zip(op.inputs, op.gradients(arrays, cots), strict=True):
        if not op.options.get("training") or name not in ("mean", "var"):  # which are MLX's sums
            assert mx.all(mx.abs(value) <= size * (1 + 1e-12)), name


@pytest.mark.parametrize("name", ["silu", "sigmoid", "gelu", "relu2"])
def test_activations_have_the_digits_of_float64(name, on_the_cpu):
    """MLX's exp and erf of float64 have not."""
    at = [(i + 0.5) / 8 for i in range(-64, 64)]
    sigmoid = lambda z: 1 / (1 + math.exp(-z))  # noqa: E731
    of = {
        "silu": lambda z: z * sigmoid(z),
        "sigmoid": sigmoid,
        "gelu": lambda z: z * (1 + math.erf(z / 2**0.5)) / 2,
        "relu2": lambda z: max(z, 0) ** 2,
    }[name]
    z = mx.array(at, mx.float64)
    f = lambda z: [exact.activation(name, z)[0]]  # noqa: E731
    slopes = [(of(z + 1e-5) - of(z - 1e-5)) / 2e-5 for z in at]
    (y,), (slope,) = mx.vjp(f, [z], [mx.ones_like(z)])
    np.testing.assert_allclose(np.array(y), list(map(of, at)), rtol=1e-12, atol=1e-15)
    np.testing.assert_allclose(np.array(exact.activation(name, z)[2]), np.array(slope), atol=1e-14)
    np.testing.assert_allclose(np.array(slope), slopes, atol=1e-8)


@pytest.mark.parametrize("dtype", [(mx.float32, np.float32), (mx.float16, np.float16)])
def test_ulp(dtype):
    largest = np.finfo(dtype[1]).max
    tiny = np.finfo(dtype[1]).smallest_subnormal
    normal = np.finfo(dtype[1]).smallest_normal
    for v in (0.0, tiny, normal, np.nextafter(normal, dtype[1](0)), 1.0, 1.5, 2.0, 3.7, -5.0):
        expected = abs(np.spacing(dtype[1](v)))
        assert oracle.ulp(np.array([float(v)]), dtype[0])[0] == expected, v
    below = float(largest) - float(np.nextafter(largest, dtype[1](0)))
    for v in (float(largest), 2.0 * float(largest), np.inf):
        assert oracle.ulp(np.array([v]), dtype[0])[0] == below, v


def test_overflow_is_right_only_past_the_largest_value():
    def check(got, truth, slack=0.0):
        truth = oracle.Truth(np.array([truth]), np.array([slack]), mx.float16, "config")
        truth.check(mx.array([got], dtype=mx.float16))

    check(float("inf"), 65520.0)
    check(float("inf"), 65519.0, 1.0)
    check(65504.0, 65519.0)
    check(float("nan"), float("nan"))
    check(float("inf"), float("inf"))
    for got, truth in [
        (float("inf"), 65519.0),
        (float("inf"), -65520.0),
        (65504.0, 66000.0),
        (float("nan"), 1.0),
        (1.0, float("nan")),
        (1.0, 1.001),
        (0.0, 1e-7),
    ]:
        with pytest.raises(AssertionError, match="values are wrong"):
            check(got, truth)


def used(truth, got):
    """The largest part of its bound that a result needs."""
    bound = truth.slack + 0.5 * oracle.ulp(truth.value, truth.dtype)
    return np.max(np.abs(oracle.exact(got) - truth.value) / bound)


def bounds_are_of_use(truth, got):
    """A result is within its bound, needs more than half of it, and could not be twice as wrong."""
    truth.check(got)
    assert used(truth, got) > 0.5
    twice = truth.value + 2.2 * (oracle.exact(got) - truth.value)
    with pytest.raises(AssertionError, match="values are wrong"):
        truth.check(mx.array(twice.astype(np.float32)).astype(got.dtype))


@pytest.mark.parametrize("scale", [mx.float32, mx.float16])
def test_what_a_subnormal_has_lost_is_multiplied_by_the_scale(scale):
    row = np.zeros((1, 331), np.float32)
    row[0, 0] = -(2.0**-23)
    arrays = dict(
        x=mx.array(row).astype(mx.float16),
        weight=mx.full((331,), -0.030775945633649826),
        scale=mx.full((331,), 77.10556030273438).astype(scale),
    )
    norm = Norm("rms_norm", eps=1e-6)
    bounds_are_of_use(oracle.forward(norm, arrays)[0], norm(arrays, stream=mx.cpu)[0])


def test_bound_of_the_gradients_of_short_rows():
    """Their errors do not average out; those of long rows do."""
    norm, shape = Norm("rms_norm"), (40000, 5)
    x, weight, cotangent = (
        normal(s, mx.float32, seed=(4, i)) for i, s in enumerate([shape, shape[1:], shape])
    )
    arrays = dict(x=x, weight=weight)
    with mx.stream(mx.cpu):
        _, (dx, _) = norm.vjp(arrays, [cotangent])
    bounds_are_of_use(oracle.gradients(norm, arrays, cotangent)["x"], dx)
