"""Layers that nearly write a norm, or that may do more, and stay as they are, to the bit."""

import sys

import mlx.core as mx
import mlx.nn as nn
import pytest

import mlx_norms
from support.inputs import normal
from support.norm_case import DTYPES
from support.written_norms import WIDTH, Layer

pytestmark = pytest.mark.usefixtures("backend")

LEFT = []
LOG = []


def left(why, **options):
    def added(call):
        LEFT.append(pytest.param(call, why, options, id=call.__name__))
        return call

    return added


def root(x, eps=1e-3, axis=-1):
    return mx.rsqrt((x * x).mean(axis, keepdims=True) + eps)


@left("it returns a tuple, not an array")
def variance_returned(self, x):
    scale = root(x)
    return x * scale, scale


@left("it combines x in a way that is no norm's")
def variance_used_again(self, x):
    scale = root(x)
    return x * scale + scale


@left("it divides a sum by another number than the length of the axis")
def unbiased_variance(self, x):
    return (x - x.mean(-1, keepdims=True)) * mx.rsqrt(x.var(-1, keepdims=True, ddof=1) + 1e-3)


@left("it divides a sum by another number than the length of the axis")
def padded_row(self, x):
    return x * mx.rsqrt((x * x).sum(-1, keepdims=True) / 90 + 1e-3)


@left("it has more than one weight")
def statistics_of_another_array(self, x):
    return x * mx.rsqrt((self.weight * self.weight).mean(-1, keepdims=True) + 1e-3)


@left("it combines x in a way that is no norm's")
def statistics_of_a_product(self, x):
    return x * root(x * self.weight)


@left("it takes Slice, which is no part of a norm")
def part_of_a_row(self, x):
    return x * root(x[..., :48])


@left("it uses where, which is no operation of a norm")
def masked(self, x):
    return x * root(mx.where(x > 0, x, 0))


@left("it uses an array of one element as a number", parameters={"eps": (1,)})
def eps_an_array(self, x):
    return x * mx.rsqrt((x * x).mean(-1, keepdims=True) + self.eps)


@left("it combines x in a way that is no norm's")
def eps_of_x(self, x):
    return x * mx.rsqrt((x * x).mean(-1, keepdims=True) + x.mean(-1, keepdims=True))


@left("it combines x in a way that is no norm's")
def weight_of_x(self, x):
    return x * root(x) * (self.weight + x)


@left("it adds eps to the root, which no kernel of ours does")
def eps_beside_the_root(self, x):
    return x / (mx.sqrt((x * x).mean(-1, keepdims=True)) + 1e-3)


@left("its eps bounds the mean instead of being added to it")
def eps_as_a_bound(self, x):
    return x * mx.rsqrt(mx.maximum((x * x).mean(-1, keepdims=True), 1e-3))


@left("it divides by a deviation of x, not of its mean")
def deviation_alone(self, x):
    return x * mx.rsqrt(x.var(-1, keepdims=True) + 1e-3)


@left("its mean and variance are not of the same rows")
def mean_of_another_axis(self, x):
    centered = x - x.mean(1, keepdims=True)
    return centered * mx.rsqrt(mx.mean(centered**2, -1, keepdims=True) + 1e-3)


@left("its statistics are not of x alone")
def squares_of_a_product(self, x):
    return x * mx.rsqrt(mx.mean(mx.square(x * self.weight), -1, keepdims=True) + 1e-3)


@left("its statistics are over several axes")
def several_axes(self, x):
    return x * root(x, axis=(-1, -2))


@left("its statistics broadcast along another axis", shape=(WIDTH, WIDTH))
def axis_lost(self, x):
    return x * mx.rsqrt((x * x).mean(-1) + 1e-3)


@left("its weight or bias is along another axis", shape=(2, WIDTH, WIDTH))
def weight_of_another_axis(self, x):
    return x * root(x, axis=1) * self.weight


@left("it has more than one weight")
def two_weights(self, x):
    return x * root(x) * self.weight * self.bias


@left("it adds a bias to an RMS norm")
def bias_of_rms(self, x):
    return x * root(x) * self.weight + self.bias


@left("it adds a number to the result")
def number_added(self, x):
    return x * root(x) + 1


@left("it combines x in a way that is no norm's")
def another_power(self, x):
    return x * mx.power((x * x).mean(-1, keepdims=True) + 1e-3, -0.25)


@left("it uses stop_gradient, which is no operation of a norm")
def constant_root(self, x):
    return x * mx.stop_gradient(root(x))


@left("it changes its argument or a parameter in place")
def in_place(self, x):
    x *= root(x)
    return x


@left("it changes its argument or a parameter in place")
def parameter_in_place(self, x):
    weight = self.weight
    weight += 1
    return x * root(x) * weight


@left("it changes more than its own variables (calls)")
def counter(self, x):
    self.calls = getattr(self, "calls", 0) + 1
    return x * root(x)


@left("it uses LOG, which is no operation of a norm")
def log(self, x):
    LOG.append(x.shape)
    return x * root(x)


@left("it uses print, which is no operation of a norm")
def printed(self, x):
    print("called")
    return x * root(x)


@left("it uses bernoulli, which is no operation of a norm")
def noise(self, x):
    return x * root(x) * (mx.random.bernoulli(1.0, x.shape))


@left("it cannot be called on an array without values", exact_why=False)
def looks_at_values(self, x):
    if x.sum() > 1e4:
        return x
    return x * root(x)


@left("its attribute hook is a function")
def hooked(self, x):
    y = x * root(x)
    return self.hook(y)


@left("it uses an array that is neither x nor its own")
def new_array(self, x):
    return x * root(x) * mx.array([2.0] * WIDTH)


def layer_of(call, parameters=None):
    cls = type("Norm", (Layer,), {"__call__": call, "__module__": "a_model"})
    layer = cls(**(parameters or {"weight": (WIDTH,), "bias": (WIDTH,)}))
    layer.hook = abs
    if call is hooked:
        layer.hook = lambda y: y
    return layer


def same(a, b):
    a, b = (y if isinstance(y, tuple) else (y,) for y in (a, b))
    return all(
        p.dtype == q.dtype and mx.array_equal(p, q, stream=mx.cpu)
        for p, q in zip(a, b, strict=True)
    )


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("transform", ["plain", "compile", "vmap", "checkpoint", "grad"])
@pytest.mark.parametrize("call, why, options", LEFT)
def test_is_left(call, why, options, transform, dtype):
    def run():
        layer = layer_of(call, options.get("parameters"))
        layer.set_dtype(dtype)
        x = normal(options.get("shape", (2, 5, WIDTH)), dtype, seed="x", mean=0.25)
        if transform == "grad":
            return mx.grad(lambda x: layer(x)[0].astype(mx.float32).sum())(x), x, layer.parameters()
        if transform == "compile" and call is not looks_at_values:
            return mx.compile(lambda x: layer(x))(x), x, layer.parameters()
        if transform == "vmap" and x.ndim == 3 and call is not looks_at_values:
            return mx.vmap(lambda x: layer(x))(x[None])[0], x, layer.parameters()
        if transform == "checkpoint" and "returned" not in call.__name__:
            return mx.checkpoint(lambda x: layer(x))(x), x, layer.parameters()
        return layer(x), x, layer.parameters()

    stock, x, parameters = run()
    with mlx_norms.patched():
        y, x_after, parameters_after = run()
        report = mlx_norms.report()
    assert report.written == {}
    assert set(report.left) == {"a_model.Norm"}
    given = report.left["a_model.Norm"]
    assert given == why or (options.get("exact_why") is False and given.startswith(why))
    assert same(y, stock)
    assert same(x, x_after)
    assert all(same(parameters[name], p) for name, p in parameters_after.items())


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
