"""The roundings that have names: both are shown to happen, and where."""

import itertools

import mlx.core as mx
import numpy as np
import pytest

from support.bits import assert_same_bits, ulps_apart
from support.inputs import arguments
from support.norm_case import OPS, Norm
from support.oracle import numpy32, round_to, statistics

pytestmark = pytest.mark.usefixtures("backend")

SHORT = (mx.float16, mx.bfloat16)


def formula(norm, arrays, early, dtype):
    """The op in NumPy float32 from the normalized values that float64 gives."""
    s = numpy32(arrays["x"])
    if norm.adds:
        s = round_to(s + numpy32(arrays["residual"]), norm.sum_dtype(arrays))
    n = statistics(norm, s.astype(np.float64))[0].astype(np.float32)
    if early:
        n = round_to(n, dtype)
    if "weight" in arrays:
        n = n * (numpy32(arrays["weight"]) + np.float32(norm.weight_offset))
    if "bias" in arrays:
        n = n + numpy32(arrays["bias"])
    return mx.array(n).astype(dtype)


def share_that_differs(a, b):
    return float(mx.mean((a != b).astype(mx.float32)))


@pytest.mark.parametrize("rounding", ["early", "late"])
@pytest.mark.parametrize("op", OPS)
def test_each_is_its_formula(op, rounding):
    """Values where a rounding of n decides: all but a few in a thousand have the formula's bits.

    Those few are where float32 arithmetic puts n, or y, on the other side of a tie.
    """
    for dtype, weight_offset in itertools.product(SHORT, (0.0, 1.0)):
        norm = Norm(op, rounding=rounding, weight_offset=weight_offset)
        arrays = arguments(norm, (64, 257), dtype, others={"weight": mx.float32})
        got = norm(arrays)[0]
        right = formula(norm, arrays, rounding == "early", dtype)
        wrong = formula(norm, arrays, rounding == "late", dtype)
        note = f"{op}, {rounding}, {dtype}, offset {weight_offset}"
        assert share_that_differs(got, right) < 0.005, note
        assert share_that_differs(got, wrong) > 0.1, note


@pytest.mark.parametrize("op", OPS)
def test_each_where_nothing_is_left_to_chance(op):
    """A row of a and -a: n is known, far from any tie, and not a value of 16 bits."""
    for dtype, rounding in itertools.product(SHORT, ("early", "late")):
        # n is 1 / sqrt(1 + eps) = 0.997754: 2043.4 steps of float16, 255.4 of bfloat16.
        norm = Norm(op, rounding=rounding, eps=0.0045075)
        row = mx.array([1.0, -1.0] * 64, dtype)
        arrays = arguments(norm, (1, 128), dtype, others={"weight": mx.float32})
        arrays["x"] = row[None]
        if norm.adds:
            arrays["x"] = arrays["residual"] = row[None] * 0.5
        weight = np.sqrt(np.arange(1.0, 129.0, dtype=np.float32))
        arrays["weight"] = mx.array(weight)
        if "bias" in arrays:
            arrays["bias"] = mx.zeros((128,), dtype)
        got = norm(arrays)[0]
        n = np.float32([1.0, -1.0] * 64) / np.sqrt(np.float32(1.0045075))
        early = mx.array(round_to(n, dtype) * weight)[None].astype(dtype)
        late = mx.array(n * weight)[None].astype(dtype)
        assert share_that_differs(early, late) > 0.1
        expected = early if rounding == "early" else late
        assert_same_bits(got, expected, f"{op}, {rounding}, {dtype}")


@pytest.mark.parametrize("op", OPS)
def test_default_is_early_but_late_with_an_offset(op):
    for dtype in SHORT:
        arrays = arguments(Norm(op), (64, 257), dtype, others={"weight": mx.float32})
        for offset, expected, other in [(0.0, "early", "late"), (1.0, "late", "early")]:
            default = Norm(op, weight_offset=offset)(arrays)[0]
            named = Norm(op, weight_offset=offset, rounding=expected)(arrays)[0]
            opposite = Norm(op, weight_offset=offset, rounding=other)(arrays)[0]
            assert_same_bits(default, named, f"{op}, {dtype}, offset {offset}")
            assert share_that_differs(default, opposite) > 0.1


@pytest.mark.parametrize("op", OPS)
def test_float32_has_no_cast_to_make(op):
    arrays = arguments(Norm(op), (64, 257), mx.float32)
    early, late = (Norm(op, rounding=r)(arrays)[0] for r in ("early", "late"))
    assert_same_bits(early, late, op)


@pytest.mark.parametrize("op", OPS)
def test_early_means_the_output_dtype(op):
    """The normalized value is rounded to the dtype asked for, not to that of x."""
    for x, out in itertools.permutations((mx.float32, *SHORT), 2):
        norm = Norm(op, rounding="early", dtype=out)
        arrays = arguments(norm, (64, 257), x, others={"weight": mx.float32})
        got = norm(arrays)[0]
        right = formula(norm, arrays, True, out)
        if out == mx.float32:
            assert norm.layer or ulps_apart(got, right) <= 8
            late = Norm(op, rounding="late", dtype=out)(arrays)[0]
            assert_same_bits(got, late, f"{op}, {x} to float32")
        else:
            assert share_that_differs(got, right) < 0.005, f"{op}, {x} to {out}"


@pytest.mark.parametrize("op", OPS)
def test_output_dtypes(op):
    """The sum's dtype, or the one asked for; never that of weight or bias."""
    dtypes = (mx.float32, *SHORT)
    for x, weight, out in itertools.product(dtypes, dtypes, (None, *dtypes)):
        norm = Norm(op, dtype=out)
        others = {n: weight for n in norm.arguments if n in ("weight", "bias")}
        got = [a.dtype for a in norm(arguments(norm, (2, 3), x, others=others))]
        assert got == [out or x, x][: len(got)]


def test_statistics_are_those_of_the_rounded_sum():
    """Rounded to float16, each sum is 2048; before, it is 2049 or 2048."""
    x = mx.full((1, 64), 2048.0, mx.float16)
    residual = mx.array([[1.0, 0.0] * 32], mx.float16)
    y, s = Norm("add_layer_norm")({"x": x, "residual": residual})
    assert mx.all(s == 2048.0) and mx.all(y == 0.0)
