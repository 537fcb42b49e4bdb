"""Transforms of group, instance and batch norm, views of x, and what compile keeps."""

import itertools

import mlx.core as mx
import pytest

import mlx_norms
from support.bits import assert_same_bits
from support.group_norm import GroupCase, parameters_of
from support.inputs import normal
from support.norm_case import DTYPES

pytestmark = pytest.mark.usefixtures("backend")

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


def gradients(norm):
    return lambda *arrays: mx.grad(lambda *a: mx.sum(mx.sin(norm(*a))), (0, 1, 2))(*arrays)


@pytest.mark.parametrize("norm", NORMS)
def test_vmap(norm):
    x, w, b = arrays((4, *SHAPE))
    many = mx.vmap(norm, in_axes=(0, None, None))(x, w, b)
    other = mx.vmap(norm, in_axes=(3, None, None))(mx.moveaxis(x, 0, 3), w, b)
    inner = mx.vmap(mx.vmap(norm, in_axes=(0, None, None)), in_axes=(0, None, None))
    twice = inner(x.reshape(2, 2, *SHAPE), w, b).reshape(x.shape)
    for i in range(4):
        for got in (many, other, twice):
            close(got[i], norm(x[i], w, b))
    ws, bs = normal((4, 16), mx.float32, seed=5), normal((4, 16), mx.float32, seed=6)
    each = mx.vmap(norm)(x, ws, bs)
    close(each[2], norm(x[2], ws[2], bs[2]))


@pytest.mark.parametrize("norm", NORMS)
def test_vmap_of_gradients(norm):
    x, w, b = arrays((4, *SHAPE))
    many = mx.vmap(gradients(norm), in_axes=(0, None, None))(x, w, b)
    for i in range(4):
        for got, expected in zip(many, gradients(norm)(x[i], w, b), strict=True):
            close(got[i], expected, 1e-4)
    # One x and many cotangents.
    cotangents = normal((3, *SHAPE), mx.float32, seed=7)

    def pull(c):
        return mx.vjp(norm, [x[0], w, b], [c])[1]

    for got, expected in zip(mx.vmap(pull)(cotangents), pull(cotangents[1]), strict=True):
        close(got[1], expected, 1e-4)


@pytest.mark.parametrize("norm", NORMS)
def test_jvp_and_second_order(norm):
    primals = arrays()
    tangents = [normal(a.shape, a.dtype, seed=(3, i)) for i, a in enumerate(primals)]
    cotangent = normal(SHAPE, mx.float32, seed=4)
    _, (along,) = mx.jvp(norm, primals, tangents)
    _, back = mx.vjp(norm, primals, [cotangent])
    total = sum(mx.sum(g * t) for g, t in zip(back, tangents, strict=True))
    close(mx.sum(along * cotangent), total, 1e-3)

    # The derivative of a gradient, along and against.
    def gradient(*arrays):
        return gradients(norm)(*arrays)[0]

    _, (along,) = mx.jvp(gradient, primals, tangents)
    _, back = mx.vjp(gradient, primals, [cotangent])
    total = sum(mx.sum(g * t) for g, t in zip(back, tangents, strict=True))
    close(mx.sum(along * cotangent), total, 1e-2)
    step = 1e-2
    ahead, behind = (
        gradient(*(a + s * t for a, t in zip(primals, tangents))) for s in (step, -step)
    )
    assert (
        mx.max(mx.abs(along - (ahead - behind) / (2 * step))) < 0.02 * mx.max(mx.abs(along)) + 0.02
    )


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


@pytest.mark.parametrize("norm", NORMS)
def test_donated_or_not(norm):
    for dtype in DTYPES:
        x, w, b = arrays(dtype=dtype)
        before = mx.array(x)
        expected = norm(x + 1, w, b)
        one = x + 1
        mx.eval(one)
        assert_same_bits(norm(one, w, b), expected)
        cotangent = normal(SHAPE, dtype, seed=3)
        mx.eval(cotangent)
        expected = mx.vjp(norm, [one, w, b], [cotangent])[1]
        got = mx.vjp(norm, [x + 1, w, b], [cotangent * 1])[1]
        for a, c in zip(got, expected, strict=True):
            assert_same_bits(a, c)
        assert_same_bits(x, before)


@pytest.mark.parametrize("norm", NORMS)
def test_compiled(norm):
    compiled, shapeless = mx.compile(norm), mx.compile(norm, shapeless=True)

    def pull(c, *arrays):
        return mx.vjp(norm, list(arrays), [c])[1]

    pulled = mx.compile(pull, shapeless=True)
    # One sample after several would end the process: MLX's own sum, replayed for one element.
    for shape in (SHAPE, (2, 5, 16), (2, 300, 16)):
        given = arrays(shape)
        assert_same_bits(compiled(*given), norm(*given))
        assert_same_bits(shapeless(*given), norm(*given))
        c = normal(shape, mx.float32, seed=2)
        for got, expected in zip(pulled(c, *given), pull(c, *given), strict=True):
            close(got, expected)


def test_compile_tells_norms_apart():
    x = normal(SHAPE, mx.float32, seed=1)

    def several(x):
        return [
            mlx_norms.group_norm(x, 4),
            mlx_norms.group_norm(x, 4, pytorch_compatible=True),
            mlx_norms.group_norm(x, 8),
            mlx_norms.group_norm(x, 4, eps=0.5),
            mlx_norms.group_norm(x, 4, activation="gelu"),
            mlx_norms.instance_norm(x),
            mlx_norms.batch_norm(x, mean=None, var=None),
        ]

    def inner(x):
        """MLX merges no outputs."""
        return [mx.negative(y) for y in several(x)]

    for got, expected in zip(mx.compile(inner)(x), inner(x), strict=True):
        assert_same_bits(got, expected)


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
