"""mx.compile(shapeless=True), called with other shapes than those of its trace."""

from functools import partial

import mlx.core as mx
import mlx.nn as nn
import numpy as np
import pytest

import mlx_norms
from support.inputs import normal
from support.releases import since

pytestmark = pytest.mark.usefixtures("backend")


def array(*shape):
    return normal(shape, mx.float32, seed=shape)


def close(got, expected):
    np.testing.assert_allclose(np.array(got), np.array(expected), rtol=1e-5, atol=1e-5)


# Each op, and the shapes of its operands for x of shape (2, 4, D).
OPERANDS = {
    "rms_norm": {"weight": "D"},
    "rms_norm scale": {"scale": "21D", "shift": "21D"},
    "rms_norm gate": {"gate": "24D"},
    "rms_norm axis": {"weight": "4"},
    "layer_norm": {"weight": "D", "bias": "D"},
    "layer_norm axis": {"weight": "4", "bias": "4"},
    "add_rms_norm": {"residual": "24D", "weight": "D"},
    "add_rms_norm factor": {"residual": "24D", "weight": "D", "factor": "21D"},
    "add_layer_norm": {"residual": "24D", "weight": "D", "bias": "D"},
    "norm_add_norm": {"residual": "24D", "post_weight": "D", "weight": "D"},
    "norm_add_norm factor": {"residual": "24D", "weight": "D", "factor": "21D"},
    "head_rms_norm": {"weight": "4D"},
    "head_layer_norm": {"weight": "D", "bias": "4D"},
    "group_norm": {"weight": "D", "bias": "D"},
    "instance_norm": {"weight": "D", "bias": "D"},
    "batch_norm": {"weight": "D", "bias": "D", "mean": "D", "var": "D"},
}
CASES = [(op, operand) for op, operands in OPERANDS.items() for operand in operands]


def function(op):
    """The op, as a function of x and its operands, in order."""
    name, *options = op.split()
    names = list(OPERANDS[op])
    fixed = {"axis": 1} if "axis" in options else {}
    fixed |= {"num_groups": 2} if name == "group_norm" else {}
    fixed |= {"eps": 1e-5}
    fixed |= {} if "weight" in names else {"weight": None}

    def f(x, *operands):
        y = getattr(mlx_norms, name)(x, **dict(zip(names, operands, strict=True)), **fixed)
        return y[0] if isinstance(y, tuple) else y

    return f


def operands_of(op, length, swapped=None):
    """Its operands for rows of a length; one has twice as many as it should."""

    def shape(name, axes):
        sizes = [length if axis == "D" else int(axis) for axis in axes]
        sizes[-1] *= 2 if name == swapped else 1
        return sizes

    return [mx.abs(array(*shape(name, axes))) for name, axes in OPERANDS[op].items()]


@pytest.mark.parametrize("op, operand", CASES)
def test_operand_that_does_not_fit(op, operand):
    """The shape follows x; what does not fit it is an error when it runs."""
    compiled = mx.compile(function(op), shapeless=True)
    mx.eval(compiled(array(2, 4, 64), *operands_of(op, 64)))
    y = compiled(array(2, 4, 64), *operands_of(op, 64, swapped=operand))
    assert y.shape == (2, 4, 64)
    with pytest.raises(ValueError, match=operand):
        mx.eval(y)


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


@since("0.32.2")
@pytest.mark.parametrize("op", OPERANDS)
def test_second_derivatives_traced_with_one_row(op):
    """MLX's own leave out the sums over axes of one element, or corrupt memory by them."""
    wrt = tuple(range(1 + len(OPERANDS[op])))

    def second(*args):
        gradient = mx.grad(lambda *args: mx.sin(function(op)(*args)).sum(), wrt)
        return mx.grad(lambda *args: sum(g.square().sum() for g in gradient(*args)), wrt)(*args)

    def arguments(batch, rows):
        sizes = {"2": batch, "4": rows, "1": 1, "D": 64}
        shapes = [[sizes[axis] for axis in axes] for axes in OPERANDS[op].values()]
        return [mx.abs(array(*shape)) + 0.1 for shape in ([batch, rows, 64], *shapes)]

    compiled = mx.compile(second, shapeless=True)
    for sizes in ((1, 1), (2, 4), (1, 3), (3, 1)):
        args = arguments(*sizes)
        for got, expected in zip(compiled(*args), second(*args), strict=True):
            got, expected = np.array(got), np.array(expected)
            atol = 1e-5 * np.abs(expected).max()
            np.testing.assert_allclose(got, expected, rtol=1e-4, atol=atol)


def test_gradient_of_statistics_traced_with_one_position():
    def running(x):
        mean, var = mx.zeros(8), mx.ones(8)
        y, mean, var = mlx_norms.batch_norm(x, mean=mean, var=var, training=True)
        return (y.sin() + mean.sin() * var).sum()

    gradient = mx.grad(running)
    compiled = mx.compile(gradient, shapeless=True)
    for shape in ((4, 1, 8), (4, 5, 8), (2, 1, 8)):
        close(compiled(array(*shape)), gradient(array(*shape)))
