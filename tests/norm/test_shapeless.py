"""mx.compile(shapeless=True), called with other shapes than those of its trace."""

from functools import partial

import mlx.core as mx
import mlx.nn as nn
import numpy as np
import pytest

import mlx_norms
from support.inputs import normal
from support.releases import since

pytestmark = pytest.mark.usefixtures("backend", "no_fusion")


def array(*shape):
    return normal(shape, mx.float32, seed=shape)


def close(got, expected):
    np.testing.assert_allclose(np.array(got), np.array(expected), rtol=1e-5, atol=1e-5)


def test_weight_of_ones_made_in_the_trace():
    """As in models without a weight; MLX compiles these without their length."""

    @partial(mx.compile, shapeless=True)
    def rms(x):
        return mx.fast.rms_norm(x, mx.ones((x.shape[-1],), x.dtype), 1e-6)

    @partial(mx.compile, shapeless=True)
    def layer(x):
        n = x.shape[-1]
        return mx.fast.layer_norm(x, mx.ones((n,), x.dtype), mx.zeros((n,), x.dtype), 1e-6)

    with mlx_norms.patched():
        for length in (64, 128, 32):
            for dtype in (mx.float32, mx.float16):
                x = array(2, 4, length).astype(dtype)
                assert mx.array_equal(rms(x), mlx_norms.rms_norm(x, None, 1e-6))
                assert mx.array_equal(layer(x), mlx_norms.layer_norm(x, None, None, 1e-6))
    assert mlx_norms.report().passed_on == 0


@pytest.mark.parametrize("samples", [pytest.param(1, marks=since("0.32.2")), 2])
@pytest.mark.parametrize(
    "layer",
    [
        lambda: nn.GroupNorm(2, 8),
        lambda: nn.GroupNorm(2, 8, pytorch_compatible=True),
        lambda: nn.InstanceNorm(8, affine=True),
        lambda: nn.BatchNorm(8).eval(),
        lambda: nn.LayerNorm(8),
        lambda: nn.RMSNorm(8),
    ],
)
def test_gradient_of_a_batch(layer, samples):
    """Traced with some samples, called with others; of one, MLX's own sum corrupts memory."""
    model = nn.Sequential(layer())
    mlx_norms.nn.replace(model)

    def loss(parameters, x):
        model.update(parameters)
        return mx.sin(model(x)).sum()

    parameters = model.trainable_parameters()
    compiled = mx.compile(mx.grad(loss), shapeless=True)
    for n in (samples, 1, 3):
        got = compiled(parameters, array(n, 4, 8))["layers"][0]
        expected = mx.grad(loss)(parameters, array(n, 4, 8))["layers"][0]
        for name in expected:
            close(got[name], expected[name])


@pytest.mark.parametrize("shape", [(2, 1, 16), (1, 4, 16), (1, 16), (16,)])
@pytest.mark.parametrize("operand", ["scale", "shift", "factor"])
def test_gradient_of_what_broadcasts(operand, shape):
    def loss(x, a):
        if operand == "factor":
            y = mlx_norms.add_rms_norm(x, x, None, factor=a)[0]
        else:
            y = mlx_norms.rms_norm(x, None, **{operand: a})
        return mx.sin(y).sum()

    gradient = mx.grad(loss, (0, 1))
    compiled = mx.compile(gradient, shapeless=True)
    for rows in (4, 4):
        args = array(2, rows, 16), array(*shape)
        for got, expected in zip(compiled(*args), gradient(*args), strict=True):
            close(got, expected)
    one = mx.compile(gradient, shapeless=True)
    like_x = (1,) * (len(shape) - 1) + (16,)
    for args in ((array(1, 1, 16), array(*like_x)),) * 2:
        for got, expected in zip(one(*args), gradient(*args), strict=True):
            close(got, expected)


def test_gradient_of_statistics_traced_with_one_position():
    def running(x):
        mean, var = mx.zeros(8), mx.ones(8)
        y, mean, var = mlx_norms.batch_norm(x, mean=mean, var=var, training=True)
        return (y.sin() + mean.sin() * var).sum()

    gradient = mx.grad(running)
    compiled = mx.compile(gradient, shapeless=True)
    for shape in ((4, 1, 8), (4, 5, 8), (2, 1, 8)):
        close(compiled(array(*shape)), gradient(array(*shape)))
