"""Written norms whose root is at least eps: rows of zeros, and rows on either side of eps."""

import mlx.core as mx
import numpy as np
import pytest

import mlx_norms
from support.inputs import normal

pytestmark = pytest.mark.usefixtures("backend")

WIDTH = 48
EPS = 1e-2
# How long rows are, in eps; at eps itself the gradient jumps.
LENGTHS = (0.0, 1e-3, 0.9, 1.1, 3.0, 1e3)


def code(axis):
    def norm(x, w):
        squares = mx.sum(x * x, axis=axis, keepdims=True)
        length = mx.sqrt(mx.maximum(squares, EPS**2))
        w = w if axis == -1 else w[:, None]
        return x / length * WIDTH**0.5 * w

    return norm


def rows(axis):
    x = normal((2, len(LENGTHS), WIDTH), mx.float32, seed="x")
    x = x / mx.linalg.norm(x, axis=-1, keepdims=True) * EPS * mx.array(LENGTHS)[:, None]
    return x if axis == -1 else mx.contiguous(x.swapaxes(1, 2))


def assert_rows_close(got, expected, axis):
    """Each row, relative to its own largest value."""
    got, expected = (np.moveaxis(np.array(a), axis, -1) for a in (got, expected))
    largest = np.abs(expected).max(-1, keepdims=True)
    assert np.all(np.abs(got - expected) <= 4e-6 * largest)


@pytest.mark.parametrize("axis", [-1, 1])
@pytest.mark.parametrize("how", ["fuse", "compile"])
def test_values(axis, how):
    x, w = rows(axis), normal((WIDTH,), mx.float32, seed="w", mean=1.0)
    with mx.stream(mx.cpu):
        expected = np.array(code(axis)(x.astype(mx.float64), w.astype(mx.float64)))
    with mlx_norms.patched():
        y = {"fuse": mlx_norms.fuse, "compile": mx.compile}[how](code(axis))(x, w)
        assert mlx_norms.report().written == {"rms_norm": 1}
        mx.eval(y)
    assert_rows_close(y, expected, axis)


@pytest.mark.parametrize("axis", [-1, 1])
def test_gradients(axis):
    x, w = rows(axis), normal((WIDTH,), mx.float32, seed="w", mean=1.0)
    cotangent = normal(x.shape, mx.float32, seed="cotangent")
    with mx.stream(mx.cpu):
        wide = [a.astype(mx.float64) for a in (x, w, cotangent)]
        _, expected = mx.vjp(code(axis), wide[:2], wide[2:])
        expected = [np.array(each) for each in expected]
    with mlx_norms.patched():
        _, found = mx.vjp(code(axis), [x, w], [cotangent])
        assert mlx_norms.report().written == {"rms_norm": 1}
        mx.eval(found)
    assert_rows_close(found[0], expected[0], axis)
    assert np.abs(np.array(found[1]) - expected[1]).max() <= 4e-6 * np.abs(expected[1]).max()
