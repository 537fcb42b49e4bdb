"""Bitwise comparison of arrays."""

import mlx.core as mx
import numpy as np

from .oracle import exact, ulp


def bits(a):
    """The bits of an array of any of the three dtypes, as NumPy integers."""
    return np.array(a.view(mx.uint32 if a.dtype == mx.float32 else mx.uint16))


def assert_same_bits(got, expected, note=""):
    __tracebackhide__ = True
    assert (got.dtype, got.shape) == (expected.dtype, expected.shape), note
    different = bits(got) != bits(expected)
    if different.any():
        at = tuple(int(i[0]) for i in np.nonzero(different))
        raise AssertionError(
            f"{note}: {different.sum()} of {different.size} values differ, first at {at}: "
            f"{exact(got)[at]:.9g} and {exact(expected)[at]:.9g}"
        )


def ulps_apart(a, b):
    """The largest distance between two finite arrays of one dtype, in ulps of the second."""
    if a.size == 0:
        return 0.0
    return float(np.max(np.abs(exact(a) - exact(b)) / ulp(exact(b), b.dtype)))
