"""Inputs that show what random ones hide."""

import itertools

import mlx.core as mx
import numpy as np
import pytest

from support import oracle
from support.bits import assert_same_bits
from support.checks import check_with_gradients, rows_of
from support.inputs import arguments, cotangents, normal, unless_slow
from support.norm_case import DTYPES, OPS, Norm

pytestmark = pytest.mark.usefixtures("backend")


# Bits of the exponent, and of the significand, of NaN and inf.
EXPONENTS = {
    mx.float32: (0x7F800000, 0x007FFFFF),
    mx.float16: (0x7C00, 0x03FF),
    mx.bfloat16: (0x7F80, 0x007F),
}


def with_sum(norm, arrays, s, dtype):
    """The arrays with x, or x + residual, equal to s rounded to a dtype."""
    s = np.asarray(s, dtype=np.float32)
    if not norm.adds:
        return arrays | {"x": mx.array(s).astype(dtype)}
    half = mx.array(0.5 * s).astype(dtype)
    return arrays | {"x": half, "residual": half}


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("op", OPS)
def test_one_hot(op, dtype):
    """Where a lane, a SIMD-group or a tail begins or ends, elements are read, and read once."""
    norm = Norm(op)
    for length in (1, 31, 33, 64, 65, 127, 128, 255, 257, 1023, 1025, 4097, 8191):
        places = sorted({p for p in (0, 31, 32, length - 33, length - 1) if 0 <= p < length})
        s = np.zeros((len(places), length))
        s[range(len(places)), places] = 2.0
        arrays = arguments(norm, s.shape, dtype)
        check_with_gradients(norm, with_sum(norm, arrays, s, dtype))


@pytest.mark.parametrize("op", OPS)
def test_every_element_counts(op):
    """Rows of ones but for one large element, which stands in turn at every place."""
    norm = Norm(op)
    for length in (2, 7, 31, 33, 65, 100, 257):
        s = np.ones((length, length)) + 99.0 * np.eye(length)
        arrays = arguments(norm, s.shape, mx.float32)
        check_with_gradients(norm, with_sum(norm, arrays, s, mx.float32))


@pytest.mark.parametrize("op", ["layer_norm", "add_layer_norm"])
def test_first_element_far_from_the_mean(op):
    """The CPU's sums are of deviations from it, which cancel the more the farther it is."""
    norm = Norm(op)
    for length, far in itertools.product((17, 64), (1.9, 2.1, 2.8, 3.5)):
        s = np.array(normal((256, length), mx.float32, seed=(length, far)), dtype=np.float64)
        rest = s[:, 1:]
        rest[:] = (rest - rest.mean(1, keepdims=True)) / rest.std(1, keepdims=True)
        # The first is then `far` standard deviations from the row's mean.
        s[:, 0] = far * np.sqrt(length / (length - 1 - far**2))
        arrays = arguments(norm, s.shape, mx.float32)
        check_with_gradients(norm, with_sum(norm, arrays, s, mx.float32))


@pytest.mark.parametrize("op", ["layer_norm", "add_layer_norm"])
def test_layer_norm_of_a_constant_row_is_the_bias(op):
    norm = Norm(op)
    for length in (1, 2, 3, 31, 100, 768, 1000, 1025, 4097, 65536):
        constants = {d: [0.0, 1.0, -3.0, 0.1, 1e4] for d in DTYPES}
        constants[mx.float32] += [1e6, -1e6, 123456.789, 3.3e5]
        for dtype, values in constants.items():
            s = np.repeat(np.float32(values)[:, None], length, axis=1)
            arrays = arguments(norm, s.shape, dtype)
            arrays = with_sum(norm, arrays, s, dtype)
            y = norm(arrays)[0]
            bias = mx.broadcast_to(arrays["bias"], y.shape)
            assert mx.array_equal(y, bias), f"{op}, {dtype}, {length} elements per row"


@pytest.mark.parametrize("op", ["layer_norm", "add_layer_norm"])
def test_rows_that_are_constant_but_for_an_ulp(op):
    """The spread is less than the error of the rounded mean."""
    norm = Norm(op)
    values = np.random.default_rng(0).uniform(1e5, 2e6, (32, 1)).astype(np.float32)
    for length in (2, 31, 33, 768, 1025, 4097):
        s = np.repeat(values, length, axis=1)
        s[:, length // 3] = np.nextafter(s[:, length // 3], np.float32(np.inf))
        s[:, -1] = np.nextafter(s[:, -1], np.float32(0))
        arrays = arguments(norm, s.shape, mx.float32)
        check_with_gradients(norm, with_sum(norm, arrays, s, mx.float32))


@pytest.mark.parametrize("op", OPS)
def test_constant_rows(op):
    norm = Norm(op)
    for length, dtype in itertools.product((1, 33, 1000), DTYPES):
        s = np.repeat(np.float32([0.0, 1.0, -3.0, 100.0])[:, None], length, axis=1)
        check_with_gradients(norm, with_sum(norm, arguments(norm, s.shape, dtype), s, dtype))


@pytest.mark.parametrize("op", OPS)
def test_long_constant_rows(op):
    """Equal terms round alike, so that the errors of a running sum would add up."""
    s = np.repeat(np.linspace(1.0, 2.0, 16, dtype=np.float32)[:, None], 65536, axis=1)
    norm = Norm(op)
    check_with_gradients(norm, with_sum(norm, arguments(norm, s.shape, mx.float32), s, mx.float32))


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("op", OPS)
def test_values_about_the_root_of_eps(op, dtype):
    """An eps that is lost, or added outside the root, shows here and nowhere else."""
    for eps, length in itertools.product((1e-5, 1e-6, 1e-3), (2, 65, 1024)):
        for factor in (0.1, 1.0, 10.0):
            norm = Norm(op, eps=eps)
            check_with_gradients(norm, arguments(norm, (3, length), dtype, std=factor * eps**0.5))


@pytest.mark.parametrize("op", OPS)
def test_eps_of_zero(op):
    norm = Norm(op, eps=0.0)
    for dtype in DTYPES:
        check_with_gradients(norm, arguments(norm, (3, 65), dtype))


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("op", OPS)
def test_zero_rows(op, dtype):
    """A row of zeros, between rows that are not, gives zeros or the bias."""
    norm = Norm(op)
    for length in (1, 33, 1024):
        s = np.array(normal((5, length), mx.float16, seed=1)).astype(np.float32)
        s[1::2] = 0.0
        arrays = with_sum(norm, arguments(norm, s.shape, dtype), s, dtype)
        check_with_gradients(norm, arrays)
        y = norm(arrays)[0]
        expected = arrays.get("bias", mx.zeros((length,), dtype))
        assert mx.array_equal(y[1], expected) and mx.array_equal(y[3], expected)


@pytest.mark.parametrize("mean", [1e4, 1e5, 1e6, -1e6])
@pytest.mark.parametrize("op", ["layer_norm", "add_layer_norm"])
def test_large_mean_and_small_variance(op, mean):
    """The rounded float32 mean alone is too far off here: it has to be corrected."""
    norm = Norm(op)
    for length, std in itertools.product((33, 100, 768, 1024, 4097, 65536), (0.1, 1.0, 10.0)):
        check_with_gradients(norm, arguments(norm, (3, length), mx.float32, mean=mean, std=std))


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("op", ["layer_norm", "add_layer_norm"])
def test_means_of_any_size_side_by_side(op, dtype):
    """How a row's variance is found depends on its own mean and spread, and on no other row's."""
    norm = Norm(op)
    means = [0.0, 1e4, 0.2, 0.25, -0.3, 1.0, 3e4, -100.0, 4.0, 0.0, 100.0, -1e3]
    for length in (33, 128, 1000, 4097, *unless_slow(65536)):
        s = np.array(normal((len(means), length), mx.float32, seed=1)) + np.float32(means)[:, None]
        arrays = with_sum(norm, arguments(norm, s.shape, dtype), s, dtype)
        cots = cotangents(norm, arrays)
        check_with_gradients(norm, arrays, cots)
        whole = rows_of(norm, arrays, cots, slice(None))
        for row, mean in enumerate(means):
            alone = rows_of(norm, arrays, cots, slice(row, row + 1))
            for got, expected in zip(alone, whole, strict=True):
                assert_same_bits(got, expected[row : row + 1], f"{length} elements about {mean}")


@pytest.mark.parametrize("mean", [1e19, 1e20, -1e20])
@pytest.mark.parametrize("op", ["layer_norm", "add_layer_norm"])
def test_squares_past_the_largest_float(op, mean):
    """Those of the deviations are not, beside rows in which no square is."""
    norm = Norm(op)
    for length, std in itertools.product((33, 128, 1000, 4097, 65536), (1e14, 1e15, 1e16)):
        s = np.array(normal((3, length), mx.float32, seed=1))
        s[::2] = s[::2] * np.float32(std) + np.float32(mean)
        arrays = arguments(norm, s.shape, mx.float32)
        check_with_gradients(norm, with_sum(norm, arrays, s, mx.float32))


@pytest.mark.parametrize("op", OPS)
def test_large_mean_in_16_bits(op):
    norm = Norm(op)
    for length in (33, 1024, 8193):
        check_with_gradients(norm, arguments(norm, (3, length), mx.float16, mean=1e4, std=100.0))
        check_with_gradients(norm, arguments(norm, (3, length), mx.bfloat16, mean=1e4, std=1e3))


@pytest.mark.parametrize("op", OPS)
def test_float16_near_its_largest_value(op):
    """Squares, and their sum, are far past what float16 holds."""
    norm = Norm(op)
    for length in (1, 33, 1024, 65536):
        signs = np.sign(np.array(normal((3, length), mx.float32, seed=1)))
        arrays = arguments(norm, (3, length), mx.float16)
        check_with_gradients(norm, with_sum(norm, arrays, 6e4 * signs, mx.float16))


@pytest.mark.parametrize("op", OPS)
def test_overflow_of_the_output(op):
    """A value past the output's largest one becomes inf, and none before does."""
    norm = Norm(op)
    arrays = arguments(norm, (7, 64), mx.float16)
    weight = normal((64,), mx.float32, seed=3, std=4e4)
    check_with_gradients(norm, arrays | {"weight": weight})
    y = norm(arrays | {"weight": weight})[0]
    assert mx.any(mx.isinf(y)) and not mx.all(mx.isinf(y))


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("op", OPS)
def test_small_values_beside_large_ones(op, dtype):
    """Normalized values go down to subnormals of float16."""
    norm = Norm(op)
    arrays = arguments(norm, (3, 257), dtype)
    s = np.array(normal((3, 257), mx.float32, seed=1)) * 10.0 ** -(np.arange(257) % 10)
    check_with_gradients(norm, with_sum(norm, arrays, s, dtype))


@pytest.mark.parametrize("place", [0, 31, -33, -1])
@pytest.mark.parametrize("bad", [float("nan"), float("inf"), float("-inf")])
@pytest.mark.parametrize("op", OPS)
def test_what_is_not_finite_stays_in_its_row(op, bad, place):
    norm = Norm(op)
    for length, dtype in itertools.product((65, 1024), DTYPES):
        arrays = arguments(norm, (5, length), dtype)
        cots = cotangents(norm, arrays)
        clean, clean_grads = norm.vjp(arrays, cots)
        spoilt = mx.array(arrays["x"])
        spoilt[2, place] = bad
        spoilt = arrays | {"x": spoilt}
        got, grads = norm.vjp(spoilt, cots)
        n = 1 + norm.adds
        for a, b in zip([*got, *grads[:n]], [*clean, *clean_grads[:n]], strict=True):
            for row in (0, 1, 3, 4):
                assert_same_bits(a[row], b[row], f"{op}, {dtype}, row {row} beside {bad}")
        row = got[0][2]
        if np.isnan(bad) or norm.layer:
            assert mx.all(mx.isnan(row)), f"{op}, {dtype}: a row with {bad} has finite values"
        else:
            others = mx.concatenate([row[: place % length], row[place % length + 1 :]])
            assert mx.isnan(row[place]) and mx.all(others == 0), f"{op}, {dtype}, {bad}"
        if norm.adds:
            expected = oracle.rounded_sum(norm, spoilt)[2]
            np.testing.assert_array_equal(oracle.exact(got[1][2]), expected)


@pytest.mark.parametrize("op", OPS)
def test_every_nan_stays_nan(op):
    """Also those whose bits, rounded up as a number's are, would pass for one."""
    for dtype, out in itertools.product(DTYPES, (None, *DTYPES)):
        norm = Norm(op, dtype=out)
        exponent, ones = EXPONENTS[dtype]
        payloads = (1, 2, ones >> 1, (ones >> 1) + 1, ones - 1, ones)
        words = mx.uint32 if dtype == mx.float32 else mx.uint16
        patterns = [sign | exponent | p for sign in (0, exponent + ones + 1) for p in payloads]
        nans = mx.array(patterns, words).view(dtype)
        arrays = arguments(norm, (nans.size, 17), dtype)
        arrays["x"][:, 3] = nans
        outputs = norm(arrays)
        assert mx.all(mx.isnan(outputs[0])), f"{op}, {dtype} to {out}"
        for total in outputs[1:]:
            assert mx.all(mx.isnan(total) == (mx.arange(17) == 3)), f"{op}, {dtype} to {out}"
