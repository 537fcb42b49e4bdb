"""Norm layers with an array in place of a number, for mlx.nn a parameter: its results, ours or its.

mlx.nn computes gradients of some of these arrays, and uses others as the numbers that they are.
"""

import mlx.core as mx
import mlx.nn
import pytest
from mlx.utils import tree_flatten

import mlx_norms
from mlx_norms import nn
from support.group_layers import CHANNELS, LAYERS, stock_layer
from support.inputs import normal
from support.patched_runs import ARGUMENTS, assert_close, run_stock
from support.releases import MLX

# MLX's layer norm gradient on CUDA is no reference (docs/mlx_layer_norm_gradient.md).
pytestmark = [
    pytest.mark.usefixtures("backend", "no_fusion"),
    pytest.mark.backends("cpu", "metal-sim"),
    pytest.mark.applies(str(MLX) != "0.32.2"),  # which alone takes no array as a shape
]

ROWS = [("RMSNorm", (CHANNELS,), {}), ("LayerNorm", (CHANNELS,), {})]


def x_of(dtype=mx.float32):
    return normal((3, 4, CHANNELS), dtype, seed="x")


def makers(name, args, kwargs):
    """For each option, a function that makes a model whose layer has an array there."""
    layer = stock_layer(name, args, kwargs)
    for option in vars(layer).keys() - {"_no_grad", "_training", "dims", "num_features"}:

        def make(option=option):
            layer = stock_layer(name, args, kwargs)
            setattr(layer, option, mx.array(getattr(layer, option)))
            return mlx.nn.Sequential(layer)

        yield make


def run(model):
    """What there is of floats in value, gradients and state, and the dtype of 16 bits' output."""
    g = normal((3, 4, CHANNELS), mx.float32, seed="g")
    run = mlx.nn.value_and_grad(model, lambda: mx.sum(model(x_of()) * g))
    found = tree_flatten([run(), model.state])
    floats = {path: a for path, a in found if isinstance(a, mx.array) and a.dtype == mx.float32}
    return floats, model.eval()(x_of(mx.bfloat16)).dtype


def ours(model):
    """With the class exchanged for that of this package."""
    layer = model.layers[0]
    object.__setattr__(layer, "__class__", getattr(nn, type(layer).__name__))


def replaced(model):
    layer = model.layers[0]
    (option,) = {*layer} - {"weight", "bias", "running_mean", "running_var"}
    name = f"{type(layer).__module__}.{type(layer).__name__}"
    reason = f"{name} has an array as {option}, which our kernels take as a number"
    assert nn.replace(model).left == {"layers.0": reason}
    assert model.layers[0] is layer


@pytest.mark.parametrize("change", [ours, replaced, mlx_norms.patch], ids=lambda f: f.__name__)
@pytest.mark.parametrize("name, args, kwargs", [*LAYERS, *ROWS])
def test_as_in_mlx_nn(name, args, kwargs, change):
    for make in makers(name, args, kwargs):
        expected, expected_dtype = run_stock(lambda make=make: run(make()))
        model = make()
        change(model)
        got, dtype = run(model)
        mlx_norms.unpatch(model)
        assert dtype == expected_dtype
        assert got.keys() == expected.keys()
        assert_close(got, expected)


@pytest.mark.parametrize("name, args, kwargs", LAYERS)
def test_in_the_report(name, args, kwargs):
    for make in makers(name, args, kwargs):
        with mlx_norms.patched():
            make()(x_of())
            assert mlx_norms.report().reasons == {ARGUMENTS: 1}


@pytest.mark.parametrize("name, args, kwargs", [*LAYERS, *ROWS])
def test_compiled(name, args, kwargs):
    """Compiled with the state as inputs, where mlx.nn cannot use the array as a number."""

    def outcome(model):
        compiled = mx.compile(model, inputs=model.state, outputs=model.state)
        try:
            return compiled(x_of())
        except (RuntimeError, TypeError, ValueError) as error:
            return type(error)

    for make in makers(name, args, kwargs):
        expected, model = outcome(make()), make()
        ours(model)
        got = outcome(model)
        if isinstance(expected, mx.array):
            assert_close(got, expected)
        else:
            assert got is expected


def test_momentum_has_a_gradient():
    def statistics(momentum):
        layer = mlx.nn.BatchNorm(CHANNELS)
        layer.momentum = momentum
        layer(x_of())
        return mx.sum(layer.running_mean**2) + mx.sum(layer.running_var**2)

    expected = mx.grad(statistics)(mx.array(0.5))
    with mlx_norms.patched():
        got = mx.grad(statistics)(mx.array(0.5))
    assert_close(got, expected)
    assert got.item() != 0
