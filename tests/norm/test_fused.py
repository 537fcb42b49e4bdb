"""Results whose bits are promised."""

import itertools

import mlx.core as mx
import numpy as np
import pytest

import mlx_norms
from support.bits import assert_same_bits, ulps_apart
from support.checks import rows_of
from support.inputs import (
    LENGTHS,
    arguments,
    cotangents,
    few_rows_for,
    in_turn,
    normal,
    unless_slow,
)
from support.norm_case import DTYPES, OPS, Norm

pytestmark = pytest.mark.usefixtures("backend")

OPTIONS = ({}, dict(rounding="late"), dict(weight_offset=1.0), dict(dtype=mx.float32))


@pytest.mark.parametrize("length", LENGTHS)
@pytest.mark.parametrize("op", ["add_rms_norm", "add_layer_norm"])
def test_fused_is_add_and_then_norm(op, length):
    pairs = in_turn(itertools.product(DTYPES, DTYPES), LENGTHS.index(length))
    for options, (x, r) in itertools.product(OPTIONS, pairs):
        norm = Norm(op, **options)
        rows = few_rows_for(length)[-1]
        arrays = arguments(norm, (rows, length), x, others={"residual": r})
        y, s = norm(arrays)
        total = arrays["x"] + arrays["residual"]
        rest = {n: arrays[n] for n in norm.arguments[2:]}
        alone = Norm(op.removeprefix("add_"), **dict(dtype=x) | options)({"x": total} | rest)[0]
        note = f"{op} of {length}, {x} and {r}, {options}"
        assert_same_bits(s, total, note)
        assert_same_bits(y, alone, note)


@pytest.mark.parametrize("op", OPS)
def test_a_row_is_the_same_in_any_batch(op):
    norm = Norm(op)
    lengths = (1, 33, 64, 255, 1025, *unless_slow(4097))
    for length, dtype in itertools.product(lengths, DTYPES):
        arrays = arguments(norm, (67, length), dtype)
        cots = cotangents(norm, arrays)
        whole = rows_of(norm, arrays, cots, slice(None))
        for rows in (slice(0, 1), slice(66, 67), slice(13, 14), slice(5, 21), slice(1, 67)):
            for got, expected in zip(rows_of(norm, arrays, cots, rows), whole, strict=True):
                assert_same_bits(got, expected[rows], f"{op} of {length}, {dtype}, {rows}")


@pytest.mark.parametrize("op", OPS)
def test_twice_the_same(op):
    norm = Norm(op)
    arrays = arguments(norm, (67, 1025), mx.bfloat16)
    cots = cotangents(norm, arrays)
    runs = [norm.vjp(arrays, cots) for _ in range(2)]
    for a, b in zip(*runs, strict=True):
        for got, expected in zip(a, b, strict=True):
            assert_same_bits(got, expected, op)


# mx.fast sums the squares of a row one after the other, so a float32 row of 65536 is 139 ulps from
# ours, and from the truth. Bits are equal where that sum is exact in any order; in float32 only
# for lengths that are a power of two, as mx.fast multiplies by the rounded 1 / length.
# A GPU has kernels of its own for mx.fast, and ours take the root's reciprocal at once there.
@pytest.mark.backends("cpu")
@pytest.mark.parametrize("length", LENGTHS)
def test_rms_norm_has_the_bits_of_mx_fast_where_the_sum_is_exact(backend, length):
    integers = np.random.default_rng(length).integers(-8, 9, (31, length))
    for dtype, weighted in itertools.product(DTYPES, (False, True)):
        if dtype == mx.float32 and length & (length - 1):
            continue
        x = mx.array(integers, dtype)
        w = normal((length,), dtype, seed=2) if weighted else None
        expected = mx.fast.rms_norm(x, w, 1e-5)
        assert_same_bits(mlx_norms.rms_norm(x, w, 1e-5), expected, f"{dtype}, weight {weighted}")


# The CPU rounds the root and its reciprocal, a GPU as its function does.
@pytest.mark.backends("metal-sim")
@pytest.mark.parametrize("length", LENGTHS)
def test_rms_norm_rounds_the_reciprocal_root_once(backend, length):
    """Where the sum is exact, all else is one rounding after the other."""
    x = np.random.default_rng(length).integers(-8, 9, (31, length)).astype(np.float32)
    mean = np.mean(np.float64(x * x), axis=1, keepdims=True).astype(np.float32)
    normalized = x * np.float32(1 / np.sqrt(np.float64(mean + np.float32(1e-5))))
    for dtype, weighted in itertools.product(DTYPES, (False, True)):
        w = normal((length,), dtype, seed=2) if weighted else None
        expected = mx.array(normalized).astype(dtype)
        expected = expected * w if weighted else expected
        got = mlx_norms.rms_norm(mx.array(x, dtype), w, 1e-5)
        assert_same_bits(got, expected, f"{dtype}, weight {weighted}")


# On a GPU mx.fast has kernels of its own.
@pytest.mark.backends("cpu", "metal-sim")
@pytest.mark.parametrize("length", LENGTHS)
def test_rms_norm_in_16_bits_is_within_an_ulp_of_mx_fast(backend, length):
    for dtype in DTYPES[1:]:
        x = normal((31, length), dtype, seed=1)
        got, expected = mlx_norms.rms_norm(x, None, 1e-5), mx.fast.rms_norm(x, None, 1e-5)
        assert ulps_apart(got, expected) <= 1, dtype
        differ = np.mean(np.array((got != expected).astype(mx.float32)))
        assert differ < 0.02, f"{dtype}: {differ} of the values differ"
