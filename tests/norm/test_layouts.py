"""Inputs that are not one row after the other: strides, offsets, broadcasts, slices."""

import itertools

import mlx.core as mx
import pytest

from support.bits import assert_same_bits
from support.inputs import arguments, cotangents
from support.layouts import LAYOUTS
from support.norm_case import DTYPES, OPS, Norm

pytestmark = pytest.mark.usefixtures("backend")


def results(norm, arrays, cots):
    return norm.vjp(arrays, cots)


def assert_same(norm, arrays, plain, cots, note):
    """Values and gradients have the bits that contiguous arrays give."""
    for a, b in zip(results(norm, arrays, cots), results(norm, plain, cots), strict=True):
        for got, expected in zip(a, b, strict=True):
            assert_same_bits(got, expected, f"{norm.op}, {note}")


@pytest.mark.parametrize("op", OPS)
def test_axes_in_another_order(op):
    norm = Norm(op)
    for order in itertools.permutations(range(4)):
        inverse = [order.index(i) for i in range(4)]
        for dtype in DTYPES:
            plain = arguments(norm, (2, 3, 5, 33), dtype)
            stored = mx.contiguous(plain["x"].transpose(order))
            mx.eval(stored)
            arrays = plain | {"x": stored.transpose(inverse)}
            assert_same(norm, arrays, plain, cotangents(norm, plain), f"stored as {order}")


@pytest.mark.parametrize("op", OPS)
def test_many_axes_of_rows(op):
    """More axes than can be merged to three, which is what a GPU kernel's layout holds."""
    norm = Norm(op)
    shape = (2, 3, 2, 3, 2, 5)
    for order, dtype in itertools.product([(4, 2, 0, 3, 1, 5), (5, 3, 1, 4, 2, 0)], DTYPES):
        inverse = [order.index(i) for i in range(6)]
        plain = arguments(norm, shape, dtype)
        stored = {n: mx.contiguous(a.transpose(order)) for n, a in plain.items() if a.ndim == 6}
        mx.eval(stored)
        arrays = plain | {n: a.transpose(inverse) for n, a in stored.items()}
        cots = [mx.contiguous(c.transpose(order)) for c in cotangents(norm, plain)]
        mx.eval(cots)
        cots = [c.transpose(inverse) for c in cots]
        assert_same(norm, arrays, plain, cots, f"stored as {order}")


@pytest.mark.parametrize("op", OPS)
def test_many_axes_without_rows(op):
    norm = Norm(op)
    plain = arguments(norm, (3, 0, 2, 3, 4, 5), mx.float32)
    arrays = {n: a.transpose(4, 1, 0, 2, 3, 5) if a.ndim == 6 else a for n, a in plain.items()}
    assert_same(norm, arrays, arrays, cotangents(norm, arrays), "no rows")


@pytest.mark.parametrize("op", OPS)
def test_outputs_are_row_contiguous(op):
    norm = Norm(op)
    arrays = arguments(norm, (4, 33), mx.float32)
    for layout in LAYOUTS:
        for out in norm(arrays | {"x": layout(arrays["x"])}):
            mx.eval(out)
            strides = memoryview(out).strides
            assert strides == (4 * 33, 4), layout.__name__


@pytest.mark.parametrize("op", OPS)
def test_what_is_around_a_slice_stays(op):
    """Nothing is written into the array that x, or an output, is a part of."""
    norm = Norm(op)
    for length, dtype in itertools.product((31, 65, 1025), DTYPES):
        arrays = arguments(norm, (3, length), dtype)
        for name in norm.arguments[: 1 + norm.adds]:
            big = mx.full((5, length + 9), float("nan"), dtype)
            big[1:4, 4 : length + 4] = arrays[name]
            before = mx.array(big)
            mx.eval(big, before)
            mx.eval(norm(arrays | {name: big[1:4, 4 : length + 4]}))
            assert_same_bits(big, before, f"{op}, {name} in a larger array, {dtype}")
            out = norm(arrays)[0]
            big[1:4, 4 : length + 4] = out
            before[1:4, 4 : length + 4] = mx.array(out)
            assert_same_bits(big, before, f"{op}, output in a larger array, {dtype}")


@pytest.mark.parametrize("op", OPS)
def test_used_again_after_the_norm(op):
    """An input that others still need is not overwritten."""
    norm = Norm(op)
    for dtype in DTYPES:
        plain = arguments(norm, (65, 257), dtype)
        expected = norm(plain)
        names = norm.arguments[: 1 + norm.adds]
        doubled = {n: plain[n] * 2 for n in names}
        mx.eval(expected, doubled)
        for held in itertools.product((False, True), repeat=len(names)):
            fresh = {n: plain[n] * 1 for n in names}
            got = norm(plain | fresh)
            after = {n: fresh[n] + fresh[n] for n, h in zip(names, held, strict=True) if h}
            del fresh
            mx.eval(got, after)
            for a, b in zip(got, expected, strict=True):
                assert_same_bits(a, b, f"{op}, {dtype}, {held} used again")
            for n, a in after.items():
                assert_same_bits(a, doubled[n], f"{op}, {dtype}, {n} used again")


@pytest.mark.parametrize("op", OPS)
def test_gradient_inputs_used_again(op):
    """Cotangents and the sum are still right after the backward."""
    norm = Norm(op)
    plain = arguments(norm, (65, 257), mx.float32)
    cots = cotangents(norm, plain)
    expected = results(norm, plain, cots)
    mx.eval(expected)
    fresh = [c * 1 for c in cots]
    inputs = {n: a * 1 for n, a in plain.items()}
    outputs, grads = results(norm, inputs, fresh)
    twice = [a + a for a in (*fresh, *inputs.values(), *outputs)]
    del fresh, inputs
    mx.eval(outputs, grads, twice)
    for a, b in zip([*outputs, *grads], [*expected[0], *expected[1]], strict=True):
        assert_same_bits(a, b, op)
    for a, b in zip(twice, [*cots, *plain.values(), *expected[0]], strict=True):
        assert_same_bits(a, b * 2, op)
