"""Transforms of group, instance and batch norm, views of x, and what compile keeps."""

import itertools

import mlx.core as mx
import pytest

import mlx_norms
from support.group_norm import GroupCase, parameters_of
from support.inputs import normal

pytestmark = pytest.mark.usefixtures("backend", "no_fusion")

SHAPE = (3, 70, 16)


def group(x, w, b):
    return mlx_norms.group_norm(x, 4, w, b, pytorch_compatible=True, activation="silu")


def strided(x, w, b):
    return mlx_norms.group_norm(x, 4, w, b)


def batch(x, w, b):
    return mlx_norms.batch_norm(x, w, b, mean=None, var=None, training=True)


def running(x, w, b):
    return mlx_norms.batch_norm(x, w, b, mean=mx.arange(16) / 16.0, var=mx.arange(16) / 4.0 + 0.5)


NORMS = (group, strided, mlx_norms.instance_norm, batch, running)


def arrays(shape=SHAPE, dtype=mx.float32):
    return [normal(shape, dtype, seed=1), *parameters_of(shape[-1], dtype).values()]


def close(got, expected, tolerance=2e-5):
    assert (got.dtype, got.shape) == (expected.dtype, expected.shape)
    assert mx.allclose(got, expected, rtol=tolerance, atol=tolerance)


def views():
    x = normal((3, 12, 10, 24), mx.float16, seed=8)
    yield x[:, 1::2]  # every other position
    yield x[..., 8:]  # of more channels
    yield x[..., 3:19]  # at no aligned place
    yield mx.contiguous(x.transpose(0, 3, 1, 2)).transpose(0, 2, 3, 1)  # channels first
    yield x.transpose(2, 1, 0, 3)
    yield x[::-1, :, ::-1]
    yield mx.broadcast_to(x[:1], (3, 12, 10, 24))
    yield x[..., ::-1]


def test_views():
    for x in views():
        c = x.shape[-1]
        p = {n: a[::2] for n, a in parameters_of(2 * c, mx.float32).items()}
        for options in (dict(num_groups=4), dict(num_groups=4, pytorch_compatible=True)):
            GroupCase("group_norm", x, **p, **options).check()
        GroupCase("instance_norm", x, **p).check()
        GroupCase("batch_norm", x, **p, mean=p["bias"], var=mx.square(p["weight"])[::1]).check()
        cotangent = mx.contiguous(normal(x.shape[::-1], x.dtype, seed=3)).transpose(3, 2, 1, 0)
        GroupCase("batch_norm", x, **p, training=True).check(cotangent)


def test_running_statistics_under_compile():
    """As state, of shapes that change."""
    p = parameters_of(16, mx.float32, running=True)
    state = [p["mean"], p["var"]]

    def update(x, mean, var):
        return mlx_norms.batch_norm(x, p["weight"], p["bias"], mean=mean, var=var, training=True)

    def step(x):
        y, *state[:] = update(x, *state)
        return y

    compiled = mx.compile(step, inputs=state, outputs=state, shapeless=True)
    expected = list(state)
    for i, shape in itertools.product(range(2), (SHAPE, (2, 5, 16))):
        x = normal(shape, mx.float32, seed=i, mean=3.0)
        y, *expected = update(x, *expected)
        close(compiled(x), y)
        for got, value in zip(state, expected, strict=True):
            close(got, value)
