"""Layers that write a norm and are called otherwise, hold others, or change what they read."""

import sys

import mlx.core as mx
import mlx.nn as nn
import pytest

import mlx_norms
from support.inputs import normal
from support.written_norms import WIDTH, Layer, root, same

pytestmark = pytest.mark.usefixtures("backend")


class Rms(Layer):
    __module__ = "a_model"
    added = 1e-3

    def __call__(self, x, scale=None):
        y = x * self.root(x) * self.weight
        return y if scale is None else y * scale

    def root(self, x):
        return mx.rsqrt((x * x).mean(-1, keepdims=True) + (self.eps * EXTRA + self.added))


EXTRA = 1.0


def rms_layer():
    return Rms(weight=(WIDTH,))


def x_of(shape=(2, 5, WIDTH)):
    return normal(shape, mx.float32, seed="x", mean=0.25)


def test_other_arguments():
    layer, x = rms_layer(), x_of()
    stock = layer(x, 2.0), layer(x, scale=2.0), layer(x=x)
    with mlx_norms.patched():
        assert same((layer(x, 2.0), layer(x, scale=2.0), layer(x=x)), stock)
        assert mlx_norms.report().written == {}


@pytest.mark.parametrize("dtype", [mx.int32, mx.float64, mx.complex64])
def test_other_dtypes(dtype):
    layer = rms_layer()
    with mx.stream(mx.cpu):
        x = mx.ones((2, WIDTH)).astype(dtype)
        stock = layer(x)
        with mlx_norms.patched():
            assert same(layer(x), stock)
            assert mlx_norms.report().written == {}


def test_submodules():
    class Block(nn.Module):
        def __init__(self):
            super().__init__()
            self.norm = rms_layer()

        def __call__(self, x):
            return x * root(x) + self.norm(x)

    block, x = Block(), x_of()
    stock = block(x)
    with mlx_norms.patched():
        y = block(x)
        assert mlx_norms.report().written == {"rms_norm: a_model.Rms": 1}
    assert mx.allclose(y, stock, rtol=1e-5, atol=1e-5, stream=mx.cpu)


def test_a_call_that_binds_no_layer():
    """What mx.compile returns claims to be a function, but a class does not bind it."""

    class Norm(Layer):
        __call__ = mx.compile(lambda x: x * root(x))

    layer, x = Norm(), x_of()
    stock = layer(x)
    with mlx_norms.patched():
        assert same(layer(x), stock)


class TestChanges:
    """What a layer reads besides its parameters is looked at in every call."""

    def check(self, change, restore=lambda: None):
        layer, x = rms_layer(), x_of()
        with mlx_norms.patched():
            layer(x)
            assert mlx_norms.report().written == {"rms_norm: a_model.Rms": 1}
            try:
                change(layer)
                y = layer(x)
                with mlx_norms.patched(written=False):
                    stock = layer(x)
            finally:
                restore()
        assert mx.allclose(y, stock, rtol=1e-5, atol=1e-6, stream=mx.cpu)
        return stock

    def test_eps(self):
        a = self.check(lambda layer: setattr(layer, "eps", 0.5))
        b = self.check(lambda layer: setattr(layer, "eps", 0.25))
        assert not same(a, b)

    def test_eps_to_an_array(self):
        self.check(lambda layer: setattr(layer, "eps", mx.array([0.5])))

    def test_weight_of_another_shape(self):
        self.check(lambda layer: setattr(layer, "weight", mx.array([3.0])))
        self.check(lambda layer: setattr(layer, "weight", x_of((5, WIDTH))))

    def test_weight_to_a_number(self):
        self.check(lambda layer: setattr(layer, "weight", 2.0))

    def test_constant_of_the_module(self, monkeypatch):
        self.check(lambda _: monkeypatch.setattr(sys.modules[__name__], "EXTRA", mx.array(1e30)))

    def test_attribute_of_the_class(self, monkeypatch):
        self.check(lambda _: monkeypatch.setattr(Rms, "added", float("inf")))

    def test_method_of_the_class(self, monkeypatch):
        self.check(lambda _: monkeypatch.setattr(Rms, "root", lambda self, x: 2.0))

    def test_method_of_the_instance(self):
        self.check(lambda layer: setattr(layer, "root", lambda x: 2.0))

    def test_training(self):
        class Switched(Layer):
            __module__ = "a_model"

            def __call__(self, x):
                return x if self.training else x * root(x) * self.weight

        layer, x = Switched(weight=(WIDTH,)), x_of()
        layer.eval()
        with mlx_norms.patched():
            layer(x)
            layer.train()
            assert same(layer(x), x)
            layer.eval()
            layer(x)
            assert list(mlx_norms.report().written.values()) == [2]
