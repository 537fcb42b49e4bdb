"""Norms over several axes that models write in MLX's operations: of groups, samples or channels."""

import mlx.core as mx
import mlx.nn as nn
import numpy as np
import pytest

import mlx_norms
from support.inputs import normal

pytestmark = pytest.mark.usefixtures("backend")

EPS, GROUPS, CHANNELS = 1e-5, 4, 32
DTYPES = [mx.float32, mx.float16, mx.bfloat16]


def normalized(x, axes):
    mean = x.mean(axes, keepdims=True)
    return (x - mean) * mx.rsqrt(mx.square(x - mean).mean(axes, keepdims=True) + EPS)


def by_var(x, axes):
    return (x - mx.mean(x, axes, keepdims=True)) / mx.sqrt(mx.var(x, axes, keepdims=True) + EPS)


def of_groups(norm, x):
    """As PyTorch's: channels of a group adjoin."""
    split = x.reshape(x.shape[0], -1, GROUPS, x.shape[-1] // GROUPS)
    return norm(split, (1, 3)).reshape(x.shape)


# By what the report counts them with; x, weight and bias.
TAKEN = {
    "groups": lambda norm, x, w, b: of_groups(norm, x) * w + b,
    "groups, no parameters": lambda norm, x, w, b: of_groups(norm, x),
    "groups, silu": lambda norm, x, w, b: nn.silu(of_groups(norm, x) * w + b),
    "positions kept apart": lambda norm, x, w, b: norm(
        x.reshape(*x.shape[:-1], GROUPS, x.shape[-1] // GROUPS), (1, 2, 4)
    ).reshape(x.shape),
    "channels that do not adjoin": lambda norm, x, w, b: norm(
        x.reshape(x.shape[0], -1, x.shape[-1] // GROUPS, GROUPS), (1, 2)
    ).reshape(x.shape),
    "of a sample": lambda norm, x, w, b: norm(x, (1, 2, 3)) * w + b,
    "a weight less one": lambda norm, x, w, b: norm(x, (1, 2, 3)) * (1 + w) + b,
    "of a channel": lambda norm, x, w, b: norm(x, (1, 2)) * w + b,
}
SHAPES = [(2, 5, 6, CHANNELS), (1, 1, 7, CHANNELS), (3, 4, 1, GROUPS)]


def given(shape, dtype):
    x = normal(shape, dtype, seed="x", mean=0.3)
    w, b = (normal(shape[-1:], dtype, seed=seed, mean=0.5) for seed in "wb")
    mx.eval(x, w, b)
    return x, w, b


def exact(code, arrays):
    """In float64, which MLX has on the CPU alone."""
    with mx.stream(mx.cpu):
        y = code(normalized, *(a.astype(mx.float64) for a in arrays))
        return np.array(y)


def is_near(y, expected, dtype):
    tolerance = {mx.float32: 1e-5, mx.float16: 4e-3, mx.bfloat16: 3e-2}[dtype]
    y = np.array(y.astype(mx.float32)).astype(np.float64)
    return np.max(np.abs(y - expected)) <= tolerance * np.max(np.abs(expected))


@pytest.mark.parametrize("norm", [normalized, by_var])
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("kind", TAKEN)
class TestTaken:
    def test_evaluated(self, kind, shape, dtype, norm):
        code, arrays = TAKEN[kind], given(shape, dtype)
        with mlx_norms.patched():
            y = code(norm, *arrays)
            mx.eval(y)
            written = mlx_norms.report().written
        assert is_near(y, exact(code, arrays), dtype)
        has_several = mx.prod(mx.array(shape[1:-1])).item() * shape[-1] > GROUPS
        assert not has_several or sum(written.values()) == 1

    def test_compiled(self, kind, shape, dtype, norm):
        code, arrays = TAKEN[kind], given(shape, dtype)
        with mlx_norms.patched():
            y = mx.compile(lambda *a: code(norm, *a))(*arrays)
            mx.eval(y)
        assert is_near(y, exact(code, arrays), dtype)


@pytest.mark.parametrize("kind", TAKEN)
def test_gradients(kind):
    arrays = given(SHAPES[0], mx.float32)
    cotangent = normal(SHAPES[0], mx.float32, seed="g")

    def loss(*arrays):
        return (TAKEN[kind](normalized, *arrays) * cotangent).sum()

    expected = mx.grad(loss, argnums=(0, 1, 2))(*arrays)
    mx.eval(expected)
    with mlx_norms.patched():
        got = mx.grad(loss, argnums=(0, 1, 2))(*arrays)
        mx.eval(got)
        assert mlx_norms.report().written == {"group_norm": 1}
    for a, b in zip(got, expected, strict=True):
        assert mx.allclose(a, b, rtol=1e-4, atol=1e-4 * mx.abs(b).max().item())


def split(x):
    return x.reshape(x.shape[0], -1, GROUPS, x.shape[-1] // GROUPS)


LEFT = {
    "groups that are not joined": lambda x, w, b: normalized(split(x), (1, 3)),
    "joined with positions": lambda x, w, b: normalized(split(x), (1, 3)).reshape(x.shape[0], -1),
    "joined with samples": lambda x, w, b: normalized(split(x), (1, 3)).reshape(-1, x.shape[-1]),
    "a weight before they are joined": lambda x, w, b: (
        normalized(split(x), (1, 3)) * w[: x.shape[-1] // GROUPS]
    ).reshape(x.shape),
    "samples, too": lambda x, w, b: normalized(x, (0, 1, 2)),
    "all": lambda x, w, b: normalized(x, (0, 1, 2, 3)),
    "a mean of others": lambda x, w, b: (
        (x - x.mean((1, 2), keepdims=True)) * mx.rsqrt(x.var((1, 2, 3), keepdims=True) + EPS)
    ),
    "a root mean square": lambda x, w, b: (
        x * mx.rsqrt(mx.square(x).mean((1, 2, 3), keepdims=True) + EPS)
    ),
    "moved channels": lambda x, w, b: (
        normalized(split(x), (1, 3)).swapaxes(2, 3).reshape(x.shape) * w
    ),
}


@pytest.mark.parametrize("kind", LEFT)
def test_left(kind):
    arrays = given(SHAPES[0], mx.float32)
    expected = LEFT[kind](*arrays)
    mx.eval(expected)
    with mlx_norms.patched():
        y = LEFT[kind](*arrays)
        mx.eval(y)
        assert mlx_norms.report().written == {}
    assert mx.allclose(y, expected, rtol=1e-5, atol=1e-5)


def test_a_root_along_another_axis():
    """Of a square array: without keepdims it is of columns, beside a weight or not."""
    x, w = normal((8, 8), mx.float32, seed="x"), normal((8,), mx.float32, seed="w")

    def code(x, w):
        return x * (w * mx.rsqrt(mx.mean(x * x, -1) + EPS))

    expected = code(x, w)
    mx.eval(expected)
    with mlx_norms.patched():
        y = code(x, w)
        mx.eval(y)
        assert mlx_norms.report().written == {}
    assert mx.allclose(y, expected, rtol=1e-5, atol=1e-5)
