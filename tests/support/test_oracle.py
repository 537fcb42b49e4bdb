"""The oracle itself: its gradients are those of its values, its ulps those of NumPy."""

import mlx.core as mx
import numpy as np
import pytest

from support import oracle
from support.inputs import normal
from support.norm_case import OPS, Norm


def value64(norm, s, w, b, g, gs):
    y, _ = oracle.statistics(norm, s)
    return ((y * (w + norm.weight_offset) + b) * g).sum() + (s * gs).sum()


@pytest.mark.parametrize("op", OPS[:2])
def test_gradients_by_finite_differences(op):
    norm = Norm(op, weight_offset=0.5)
    rng = np.random.default_rng(0)
    s, g, gs, ts = rng.standard_normal((4, 3, 9))
    w, b, tw, tb = rng.standard_normal((4, 9))
    values, sizes = oracle.gradient_values(norm, s, w, g, gs)
    h = 1e-5
    up = value64(norm, s + h * ts, w + h * tw, b + h * tb, g, gs)
    down = value64(norm, s - h * ts, w - h * tw, b - h * tb, g, gs)
    along = (values["s"] * ts).sum() + (values["weight"] * tw).sum() + (values["bias"] * tb).sum()
    np.testing.assert_allclose((up - down) / (2 * h), along, rtol=1e-8)
    assert all((np.abs(values[k]) <= sizes[k] * (1 + 1e-12)).all() for k in values)


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
