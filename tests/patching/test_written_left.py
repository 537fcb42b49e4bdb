"""Layers that nearly write a norm, or that may do more, and stay as they are, to the bit.

In transforms the norm amid what they do is taken from the graph: only rounding differs.
"""

import mlx.core as mx
import pytest

import mlx_norms
from support.inputs import normal
from support.norm_case import DTYPES
from support.patched_runs import assert_close
from support.written_norms import WIDTH, Layer, root, same

pytestmark = pytest.mark.usefixtures("backend")

LEFT = []
LOG = []


def left(why, **options):
    def added(call):
        LEFT.append(pytest.param(call, why, options, id=call.__name__))
        return call

    return added


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


@left("its eps is an array", parameters={"eps": (1,)})
def eps_an_array(self, x):
    return x * mx.rsqrt((x * x).mean(-1, keepdims=True) + self.eps)


@left(
    "its weight is no vector, besides its bias",
    parameters={"weight": (5, WIDTH), "bias": (WIDTH,)},
)
def bias_after_a_weight_of_rows(self, x):
    y = (x - x.mean(-1, keepdims=True)) * mx.rsqrt(x.var(-1, keepdims=True) + 1e-3)
    return y * self.weight + self.bias


@left("its weight is no vector, of axes that it moves", parameters={"weight": (2, WIDTH)})
def weight_of_rows_of_moved_axes(self, x):
    x = x.swapaxes(0, 1)
    return (x * root(x) * self.weight).swapaxes(0, 1)


@left("it combines x in a way that is no norm's", parameters={"weight": (5, WIDTH)})
def offset_of_a_weight_of_rows(self, x):
    return x * root(x) * (1 + self.weight)


@left("it takes ExpandDims, which is no part of a norm", parameters={"weight": (2, WIDTH)})
def weight_of_other_rows(self, x):
    return x * root(x) * self.weight[:, None]


@left("it divides a sum by another number than the length of the axis")
def squares_of_halves(self, x):
    half = x * 0.5
    return x * mx.rsqrt(half.square().sum(-1, keepdims=True) + 1e-3)


@left("it rounds x to 16 bits before it is normalized")
def rounded_share(self, x):
    share = (x.astype(mx.float32) * WIDTH**-0.5).astype(mx.bfloat16).astype(mx.float32)
    return x * mx.rsqrt(share.square().sum(-1, keepdims=True) + 1e-3)


@left("it combines x in a way that is no norm's")
def negative_root(self, x):
    length = mx.sqrt((x * x).sum(-1, keepdims=True))
    return x / mx.maximum(length * -1.0, 1.0)


@left("it combines x in a way that is no norm's")
def eps_of_x(self, x):
    return x * mx.rsqrt((x * x).mean(-1, keepdims=True) + x.mean(-1, keepdims=True))


@left("it combines x in a way that is no norm's")
def weight_of_x(self, x):
    return x * root(x) * (self.weight + x)


@left("it adds eps to the root, which no kernel of ours does")
def eps_beside_the_root(self, x):
    return x / (mx.sqrt((x * x).mean(-1, keepdims=True)) + 1e-3)


@left("its eps bounds the variance instead of being added to it")
def eps_as_a_bound(self, x):
    x = x - x.mean(-1, keepdims=True)
    return x * mx.rsqrt(mx.maximum(x.square().mean(-1, keepdims=True), 1e-3))


@left("it is an l2 norm over another axis than the last one", shape=(2, WIDTH, 7))
def unit_length_of_channels(self, x):
    return x / mx.maximum(mx.linalg.norm(x, axis=1, keepdims=True), 1e-3)


@left("it is an l2 norm over another axis than the last one", shape=(2, WIDTH, 7))
def unit_length_of_channels_at_the_end(self, x):
    x = x.swapaxes(1, 2)
    y = x / mx.maximum(mx.linalg.norm(x, axis=-1, keepdims=True), 1e-3)
    return y.swapaxes(1, 2)


@left("it takes Transpose, which is no part of a norm", shape=(WIDTH, WIDTH, WIDTH))
def not_moved_back(self, x):
    x = x.transpose(1, 2, 0)
    return (x * root(x)).transpose(1, 2, 0)


@left("it combines x in a way that is no norm's")
def magnitudes_over_the_root(self, x):
    return mx.abs(x) * root(x)


@left("it is an l2 norm with a weight that is more than a vector")
def length_and_an_offset(self, x):
    length = mx.linalg.norm(x, axis=-1, keepdims=True)
    return x / mx.maximum(length, 1e-3) * (1 + self.weight)


@left("it takes Minimum, which is no part of a norm")
def clipped_on_both_sides(self, x):
    mean = mx.clip((x * x).mean(-1, keepdims=True), 1e-3, 1e3)
    return x * mx.rsqrt(mean)


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


@left("it sets calls, which is no variable of its own")
def counter(self, x):
    self.calls += 1
    return x * root(x)


@left("it uses getattr, which is no operation of a norm")
def attribute_by_a_name(self, x):
    return x * root(x, getattr(self, self.which))


@left("it uses LOG, which is no operation of a norm")
def log(self, x):
    LOG.append(x.shape)
    return x * root(x)


@left("it uses freeze, which is no operation of a norm")
def method_of_every_layer(self, x):
    return x * root(x) if self.eps > 0 else self.freeze()


@left("it uses helper, which is no operation of a norm")
def attribute_of_another_object(self, x):
    return x * root(x) if self.eps > 0 else x.helper


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


@left("it does more than compute: it imports, yields, catches errors, or the like")
def errors_caught(self, x):
    try:
        scale = 2.0 if x.sum() < 1e4 else 1.0
    except Exception:
        scale = 3.0
    return x * root(x) * scale


@left("it does more than compute: it imports, yields, catches errors, or the like")
def on_a_stream(self, x):
    with mx.stream(mx.cpu):
        return x * root(x)


@left("it sets items of an array or a list")
def item_set(self, x):
    y = x * root(x)
    y[0] = 1
    return y


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
    layer.calls = 0
    layer.which = "eps"
    if call is hooked:
        layer.hook = lambda y: y
    return layer


@pytest.mark.usefixtures("no_fusion")
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("transform", ["plain", "compile", "vmap", "checkpoint", "grad"])
@pytest.mark.parametrize("call, why, options", LEFT)
def test_is_left(call, why, options, transform, dtype):
    def run():
        layer = layer_of(call, options.get("parameters"))
        layer.set_dtype(dtype)
        x = normal(options.get("shape", (2, 5, WIDTH)), dtype, seed="x", mean=0.25)
        if call is errors_caught:
            return layer(x), x, layer.parameters()
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
    if report.inline:
        assert transform in ("compile", "checkpoint", "grad")
        assert_close(y.astype(dtype), stock.astype(dtype), roundings=16)
    else:
        assert same(y, stock)
    assert same(x, x_after)
    assert all(same(parameters[name], p) for name, p in parameters_after.items())
