"""Rows of any magnitude, and rows with an element far from the others.

Wherever sum |x| and sum (x - mean)^2 fit float32 with a factor of 4 to spare, a norm is as right as
of ordinary rows. Beyond, no value is finite and wrong where mx.fast on the CPU has none.
"""

import mlx.core as mx
import numpy as np
import pytest

from support import oracle
from support.bits import assert_same_bits
from support.checks import check_with_gradients, rows_of
from support.inputs import arguments, cotangents, normal, unless_slow
from support.norm_case import OPS, Norm, describe

pytestmark = pytest.mark.usefixtures("backend")

WIDE = (mx.float32, mx.bfloat16)  # dtypes of float32's range
LAYER = ("layer_norm", "add_layer_norm")
LENGTHS = (1, 2, 3, 31, 64, 127, 768, 4097, *unless_slow(100_003))
LARGEST = float(np.finfo(np.float32).max)


def fits(norm, s):
    """Whether the sums over each row of s fit float32 with a factor of 4 to spare."""
    with np.errstate(over="ignore"):
        centered = s - s.mean(-1, keepdims=True) if norm.layer else s
        sums = [np.abs(s).sum(-1), (centered * centered).sum(-1)]
    return np.all([total < LARGEST / 4 for total in sums], axis=0)


def arrays_of(norm, s, dtype):
    """Arrays with x, or x + residual, of the values s that fit, which are also returned."""
    s = s[fits(norm, oracle.exact(mx.array(s.astype(np.float32)).astype(dtype)))]
    x = mx.array(s.astype(np.float32)).astype(dtype)
    arrays = arguments(norm, s.shape, dtype) | {"x": x}
    if norm.adds:
        arrays["residual"] = mx.zeros_like(x)
    return arrays


def lengths_and_dtypes(op):
    """Each length with one of the dtypes, in turn with the ops."""
    turns = enumerate(LENGTHS, OPS.index(op))
    return [(length, WIDE[turn % len(WIDE)]) for turn, length in turns]


@pytest.mark.parametrize("op", OPS)
def test_magnitudes(op):
    norm = Norm(op)
    for length, dtype in lengths_and_dtypes(op):
        values = np.array(normal((3, length), mx.float32, seed=length)).astype(np.float64)
        exponents = range(-19, 20, 1 if length < 10_000 else 6)
        s = np.concatenate([values * 10.0**e for e in exponents])
        arrays = arrays_of(norm, s, dtype)
        assert arrays["x"].shape[0] > 2 * len(exponents)  # the largest are too large
        check_with_gradients(norm, arrays)


@pytest.mark.parametrize("op", LAYER)
def test_constant_rows_of_any_magnitude(op):
    """Whatever is left of the mean's rounding stands out where eps is small beside it."""
    norm = Norm(op, eps=1e-12)
    for length in LENGTHS:
        values = [sign * 1.1 * 10.0**e for e in range(-3, 19, 3) for sign in (1, -1)]
        s = np.repeat(np.array(values)[:, None], length, axis=1)
        check_with_gradients(norm, arrays_of(norm, s, mx.float32))


@pytest.mark.parametrize("op", LAYER)
def test_squares_of_deviations_near_the_largest_float(op):
    """Of many rows, whose sums of squares fit where those about another shift would not."""
    norm = Norm(op)
    s = np.array(normal((200, 127), mx.float32, seed=0)).astype(np.float64) * 7e17
    arrays = arrays_of(norm, s, mx.float32)
    assert arrays["x"].shape[0] > 150
    check_with_gradients(norm, arrays)


@pytest.mark.parametrize("op", OPS)
def test_outliers(op):
    """At the first, the middle and the last place, of ordinary rows and of rows about a mean."""
    norm = Norm(op)
    for length, dtype in lengths_and_dtypes(op)[1:]:
        values = np.array(normal((2, length), mx.float32, seed=length)).astype(np.float64)
        values[1] += 100.0
        rows = []
        for size in (1e3, 1e9, 1e15, 2e16, 4e17, -9e18):
            for place in (0, length // 2, length - 1):
                row = values.copy()
                row[:, place] = size
                rows.append(row)
        check_with_gradients(norm, arrays_of(norm, np.concatenate(rows), dtype))


@pytest.mark.parametrize("op", LAYER)
def test_large_cotangents(op):
    """Sums with the cotangent may be past float32 before the row's scale is applied."""
    norm = Norm(op)
    for length in (5, 127, 1024, 4097):
        arrays = arguments(norm, (3, length), mx.float32, std=1e15)
        if norm.adds:
            arrays["residual"] *= 0
        cots = [c * 1e25 for c in cotangents(norm, arrays)]
        check_with_gradients(norm, arrays, cots)


@pytest.mark.parametrize("dtype", WIDE, ids=str)
@pytest.mark.parametrize("op", LAYER)
def test_what_is_too_large_is_not_wrong_in_silence(op, dtype):
    """No wrong finite value where mx.fast on the CPU has none, and none of another row's."""
    norm = Norm(op)
    rng = np.random.default_rng(0)
    for length in (3, 64, 127, 1000, 4097):
        s = rng.standard_normal((12, length))
        s[1] *= 1e20
        s[3] = 1e38 * np.sign(s[3])
        s[5] = 1e38
        s[7] = 1e38 * (1 + 1e-2 * s[7])
        s[9, 0] = 1e20
        s[10, -1] = -3e38
        s[11] = 0.0  # its sum is past the largest float, or 0, by the order of the terms
        s[11, 0:5:4], s[11, 64:69:4] = 2e38, -2e38
        x = mx.array(s.astype(np.float32)).astype(dtype)
        arrays = arguments(norm, s.shape, dtype) | {"x": x}
        if norm.adds:
            arrays["residual"] = mx.zeros_like(x)
        cots = cotangents(norm, arrays)
        got = oracle.exact(norm(arrays)[0])
        weight, bias = (arrays[name].astype(mx.float32) for name in ("weight", "bias"))
        with mx.stream(mx.cpu):
            stock = mx.fast.layer_norm(x.astype(mx.float32), weight, bias, norm.eps)
        truth = oracle.forward(norm, arrays)[0]
        lost = ~np.isfinite(oracle.exact(stock)) & np.isfinite(got)
        near = np.abs(got - truth.value) <= truth.slack + 0.5 * oracle.ulp(truth.value, dtype)
        assert np.all(near[lost]), describe(norm, arrays)
        ordinary = [0, 2, 4, 6, 8]
        for a, b in zip(
            rows_of(norm, arrays, cots, mx.array(ordinary)),
            rows_of(norm, arrays, cots, slice(None)),
            strict=True,
        ):
            assert_same_bits(a, b[mx.array(ordinary)], describe(norm, arrays))
