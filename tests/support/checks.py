"""Compares a call, and its gradients, with the oracle."""

import mlx.core as mx
import pytest

import mlx_norms

from . import oracle
from .bits import assert_same_bits
from .inputs import cotangents
from .norm_case import describe


def check(norm, arrays, note=""):
    """Checks the values of every output."""
    __tracebackhide__ = True
    check_outputs(norm, arrays, norm(arrays), note)


def check_with_gradients(norm, arrays, cots=None, note=""):
    """Checks the values of every output and the gradients of every argument."""
    __tracebackhide__ = True
    cots = cots or cotangents(norm, arrays)
    outputs, gradients = norm.vjp(arrays, cots)
    for got, plain in zip(outputs, norm(arrays), strict=True):
        assert_same_bits(got, plain, f"{describe(norm, arrays)} {note}")  # without a gradient
    check_outputs(norm, arrays, outputs, note)
    check_gradients(norm, arrays, cots, gradients, note)


def rows_of(norm, arrays, cots, rows):
    """For some of the rows, the outputs and gradients that are arrays of rows."""
    names = norm.arguments[: 1 + norm.adds]
    some = arrays | {n: arrays[n][rows] for n in names}
    outputs, gradients = norm.vjp(some, [c[rows] for c in cots])
    return [*outputs, *gradients[: len(names)]]


def check_outputs(norm, arrays, outputs, note=""):
    __tracebackhide__ = True
    for truth, got in zip(oracle.forward(norm, arrays), outputs, strict=True):
        truth.check(got, note)


def check_gradients(norm, arrays, cots, gradients, note=""):
    """Checks gradients; ``cots`` may hold None for a cotangent that is zero."""
    __tracebackhide__ = True
    truths = oracle.gradients(norm, arrays, *cots)
    for truth, got in zip(truths.values(), gradients, strict=True):
        truth.check(got, note)


def check_refused_factors(op):
    """Those of an op of x and a residual that are no number, or no array that broadcasts to x."""
    __tracebackhide__ = True
    f = getattr(mlx_norms, op)
    x = mx.ones((2, 3, 4))
    for shape in [(), (1,), (3,), (3, 1, 4), (2, 3, 1), (1, 2, 3, 4)]:
        with pytest.raises(ValueError, match=rf"^\[{op}\] factor\b.*\(2,3,4\)"):
            f(x, x, factor=mx.ones(shape))
    with pytest.raises(ValueError, match=rf"^\[{op}\] factor\b.*float32, float16 or bfloat16"):
        f(x, x, factor=mx.ones(4, mx.int32))
    for bad in ("half", [1.0]):
        with pytest.raises(TypeError):
            f(x, x, factor=bad)
