"""Code that nearly writes a norm, or more than one: what is no norm stays as it is, to the bit.

Of a norm amid what the code does only rounding differs.
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


def left(taken=None, **options):
    """Of the code the op `taken` becomes ours, or nothing."""

    def added(call):
        LEFT.append(pytest.param(call, taken, options, id=call.__name__))
        return call

    return added


@left()
def variance_returned(self, x):
    scale = root(x)
    return x * scale, scale


@left()
def variance_used_again(self, x):
    scale = root(x)
    return x * scale + scale


@left()
def unbiased_variance(self, x):
    return (x - x.mean(-1, keepdims=True)) * mx.rsqrt(x.var(-1, keepdims=True, ddof=1) + 1e-3)


@left()
def padded_row(self, x):
    return x * mx.rsqrt((x * x).sum(-1, keepdims=True) / 90 + 1e-3)


@left()
def statistics_of_another_array(self, x):
    return x * mx.rsqrt((self.weight * self.weight).mean(-1, keepdims=True) + 1e-3)


@left()
def statistics_of_a_product(self, x):
    return x * root(x * self.weight)


@left()
def part_of_a_row(self, x):
    return x * root(x[..., :48])


@left()
def masked(self, x):
    return x * root(mx.where(x > 0, x, 0))


@left(parameters={"eps": (1,)})
def eps_an_array(self, x):
    return x * mx.rsqrt((x * x).mean(-1, keepdims=True) + self.eps)


@left("layer_norm", parameters={"weight": (5, WIDTH), "bias": (WIDTH,)})
def bias_after_a_weight_of_rows(self, x):
    y = (x - x.mean(-1, keepdims=True)) * mx.rsqrt(x.var(-1, keepdims=True) + 1e-3)
    return y * self.weight + self.bias


@left("rms_norm", parameters={"weight": (2, WIDTH)})
def weight_of_rows_of_moved_axes(self, x):
    x = x.swapaxes(0, 1)
    return (x * root(x) * self.weight).swapaxes(0, 1)


@left("rms_norm", parameters={"weight": (5, WIDTH)})
def offset_of_a_weight_of_rows(self, x):
    return x * root(x) * (1 + self.weight)


@left("rms_norm", parameters={"weight": (2, WIDTH)})
def weight_of_other_rows(self, x):
    return x * root(x) * self.weight[:, None]


@left()
def squares_of_halves(self, x):
    half = x * 0.5
    return x * mx.rsqrt(half.square().sum(-1, keepdims=True) + 1e-3)


@left()
def rounded_share(self, x):
    share = (x.astype(mx.float32) * WIDTH**-0.5).astype(mx.bfloat16).astype(mx.float32)
    return x * mx.rsqrt(share.square().sum(-1, keepdims=True) + 1e-3)


@left()
def negative_root(self, x):
    length = mx.sqrt((x * x).sum(-1, keepdims=True))
    return x / mx.maximum(length * -1.0, 1.0)


@left()
def eps_of_x(self, x):
    return x * mx.rsqrt((x * x).mean(-1, keepdims=True) + x.mean(-1, keepdims=True))


@left("rms_norm")
def weight_of_x(self, x):
    return x * root(x) * (self.weight + x)


@left()
def eps_beside_the_root(self, x):
    return x / (mx.sqrt((x * x).mean(-1, keepdims=True)) + 1e-3)


@left()
def eps_as_a_bound(self, x):
    x = x - x.mean(-1, keepdims=True)
    return x * mx.rsqrt(mx.maximum(x.square().mean(-1, keepdims=True), 1e-3))


@left(shape=(2, WIDTH, 7))
def unit_length_of_channels(self, x):
    return x / mx.maximum(mx.linalg.norm(x, axis=1, keepdims=True), 1e-3)


@left("l2_norm", shape=(2, WIDTH, 7))
def unit_length_of_channels_at_the_end(self, x):
    x = x.swapaxes(1, 2)
    y = x / mx.maximum(mx.linalg.norm(x, axis=-1, keepdims=True), 1e-3)
    return y.swapaxes(1, 2)


@left("rms_norm", shape=(WIDTH, WIDTH, WIDTH))
def not_moved_back(self, x):
    x = x.transpose(1, 2, 0)
    return (x * root(x)).transpose(1, 2, 0)


@left()
def magnitudes_over_the_root(self, x):
    return mx.abs(x) * root(x)


@left("l2_norm")
def length_and_an_offset(self, x):
    length = mx.linalg.norm(x, axis=-1, keepdims=True)
    return x / mx.maximum(length, 1e-3) * (1 + self.weight)


@left()
def clipped_on_both_sides(self, x):
    mean = mx.clip((x * x).mean(-1, keepdims=True), 1e-3, 1e3)
    return x * mx.rsqrt(mean)


@left()
def deviation_alone(self, x):
    return x * mx.rsqrt(x.var(-1, keepdims=True) + 1e-3)


@left()
def mean_of_another_axis(self, x):
    centered = x - x.mean(1, keepdims=True)
    return centered * mx.rsqrt(mx.mean(centered**2, -1, keepdims=True) + 1e-3)


@left()
def squares_of_a_product(self, x):
    return x * mx.rsqrt(mx.mean(mx.square(x * self.weight), -1, keepdims=True) + 1e-3)


@left()
def several_axes(self, x):
    return x * root(x, axis=(-1, -2))


@left(shape=(WIDTH, WIDTH))
def axis_lost(self, x):
    return x * mx.rsqrt((x * x).mean(-1) + 1e-3)


@left("rms_norm", shape=(2, WIDTH, WIDTH))
def weight_of_another_axis(self, x):
    return x * root(x, axis=1) * self.weight


@left("rms_norm")
def two_weights(self, x):
    return x * root(x) * self.weight * self.bias


@left("rms_norm")
def bias_of_rms(self, x):
    return x * root(x) * self.weight + self.bias


@left("rms_norm")
def number_added(self, x):
    return x * root(x) + 1


@left()
def another_power(self, x):
    return x * mx.power((x * x).mean(-1, keepdims=True) + 1e-3, -0.25)


@left()
def constant_root(self, x):
    return x * mx.stop_gradient(root(x))


@left("rms_norm")
def in_place(self, x):
    x *= root(x)
    return x


@left("rms_norm")
def parameter_in_place(self, x):
    weight = self.weight
    weight += 1
    return x * root(x) * weight


@left("rms_norm")
def log(self, x):
    LOG.append(x.shape)
    return x * root(x)


@left("rms_norm")
def looks_at_values(self, x):
    if x.sum() > 1e4:
        return x
    return x * root(x)


@left("rms_norm")
def on_a_stream(self, x):
    with mx.stream(mx.cpu):
        return x * root(x)


@left("rms_norm")
def item_set(self, x):
    y = x * root(x)
    y[0] = 1
    return y


@left()
def centered_returned(self, x):
    centered = x - x.mean(-1, keepdims=True)
    return centered * root(centered), centered


@left(parameters={"epsilon": ()})
def eps_an_array_without_axes(self, x):
    return x * mx.rsqrt((x * x).mean(-1, keepdims=True) + self.epsilon)


@left()
def on_two_streams(self, x):
    with mx.stream(mx.new_stream(mx.default_device())):
        scale = root(x)
    return x * scale


@left()
def negative_eps(self, x):
    return x * mx.rsqrt((x * x).mean(-1, keepdims=True) - 1e-3)


@left(parameters={"number": ()})
def number_of_an_array(self, x):
    return (x * self.number) * mx.rsqrt((x * x).mean(-1, keepdims=True) + 1e-3)


@left()
def mean_times_sum(self, x):
    """Which is no square of the mean."""
    mean = x.mean(-1, keepdims=True)
    apart = x.square().mean(-1, keepdims=True) - mean * x.sum(-1, keepdims=True)
    return (x - mean) * mx.rsqrt(apart + 1e4)


@left(shape=(WIDTH,))
def statistics_of_one_axis_more(self, x):
    squares = mx.broadcast_to(x * x, (1, WIDTH))
    return x * mx.rsqrt(squares.mean(-1) + 1e-3)


def grad(f):
    def loss(*arrays):
        return sum(y.astype(mx.float32).sum() for y in listed(f(*arrays)))

    return lambda *arrays: mx.grad(loss, list(range(len(arrays))))(*arrays)


TRANSFORMS = {
    "plain": lambda f: f,
    "fuse": lambda f: mlx_norms.fuse(f) if mlx_norms.is_patched() else f,
    "compile": lambda f: mx.compile(f),
    "shapeless": lambda f: mx.compile(f, shapeless=True),
    "checkpoint": lambda f: mx.checkpoint(f),
    "vmap": lambda f: lambda x, *others: mx.vmap(lambda x: f(x, *others))(x[None]),
    "grad": grad,
}
# What MLX itself refuses, and what is a norm where mx.compile leaves out that gradients stop.
REFUSED = {
    "shapeless": (part_of_a_row, axis_lost, item_set),
    "vmap": (item_set, on_a_stream, on_two_streams),
    "compile": (constant_root,),
}


def listed(results):
    return results if isinstance(results, (list, tuple)) else (results,)


@pytest.mark.usefixtures("no_fusion")
@pytest.mark.parametrize("transform", TRANSFORMS)
@pytest.mark.parametrize("call, taken, options", LEFT)
def test_is_left(call, taken, options, transform):
    """For a reason that is the code's, whatever its dtype."""
    turn = [of.values[0] for of in LEFT].index(call) + list(TRANSFORMS).index(transform)
    dtype = DTYPES[turn % len(DTYPES)]
    x = normal(options.get("shape", (2, 5, WIDTH)), dtype, seed="x", mean=0.25)
    if transform not in ("plain", "grad") and call is looks_at_values:
        return
    if call in REFUSED.get(transform, ()) or (transform == "vmap" and x.ndim != 3):
        return
    shapes = options.get("parameters", {"weight": (WIDTH,), "bias": (WIDTH,)})
    layer = type("Norm", (Layer,), {"__call__": call})(**shapes)
    layer.set_dtype(dtype)
    parameters = dict(layer.parameters())

    def run():
        def code(x, *arrays):
            dict.update(layer, zip(parameters, arrays, strict=True))
            return layer(x)

        arrays = [mx.array(a) for a in parameters.values()]
        mx.eval(arrays)
        results = listed(TRANSFORMS[transform](code)(x, *arrays))
        mx.eval(results)
        return results, arrays

    stock, before = run()
    with mlx_norms.patched():
        ours, after = run()
        written = mlx_norms.report().written
    if transform == "plain" or not taken:
        assert written == ({taken: 1} if taken else {})
    if written:
        assert_close(ours, stock, roundings=16)
    else:
        assert all(map(same, ours, stock))
    assert all(map(same, after, before))
