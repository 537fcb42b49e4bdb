"""Layers that write a norm in MLX's operations, as models do, and what they compute."""

from collections.abc import Callable
from dataclasses import dataclass

import mlx.core as mx
import mlx.nn as nn

from .inputs import normal

WIDTH, EPS = 96, 1e-3  # so large an eps that its place shows in every result
BOUND = 1.3e-2  # which is more than the mean of squares of some rows, and less than that of others


class Layer(nn.Module):
    """With the parameters that a form names."""

    def __init__(self, **shapes):
        super().__init__()
        self.eps = EPS
        for name, shape in shapes.items():
            setattr(self, name, normal(shape, mx.float32, seed=name, mean=0.5))


def affine(width=WIDTH):
    return {"weight": (width,), "bias": (width,)}


@dataclass(frozen=True)
class Form:
    """A norm as it is written: ``call(layer, x)``.

    ``op`` is ours. ``exact`` computes it of float64 arrays, by ``norm`` below. ``wide`` says that
    the code computes in float32, so that what it returns of 16 bits is rounded at most twice.
    ``inline`` says that the norm is found amid other code, too.
    """

    name: str
    call: Callable
    op: str
    exact: Callable
    parameters: dict
    shape: tuple = (2, 5, WIDTH)
    wide: bool = False
    inline: bool = True

    def layer(self, dtype=mx.float32):
        cls = type("Norm", (Layer,), {"__call__": self.call, "__module__": "a_model"})
        layer = cls(**self.parameters)
        layer.set_dtype(dtype)
        return layer

    def x(self, dtype=mx.float32):
        # A mean, and rows whose squares are not far from eps.
        return (normal(self.shape, mx.float32, seed="x", mean=0.5) * 0.1).astype(dtype)


def norm(x, *, center=False, axis=-1, eps=EPS):
    x = x - x.mean(axis, keepdims=True) if center else x
    return x / mx.sqrt((x * x).mean(axis, keepdims=True) + eps)


def rms(x, weight, bias=None):
    return norm(x) * weight


def offset_rms(x, weight, bias=None):
    return norm(x) * (1 + weight)


def layer_norm(x, weight=1.0, bias=0.0):
    return norm(x, center=True) * weight + bias


def root(x, eps=EPS, axis=-1):
    return mx.rsqrt((x * x).mean(axis, keepdims=True) + eps)


def same(a, b):
    """Whether arrays, or tuples of them, are the same to the bit."""
    a, b = (y if isinstance(y, tuple) else (y,) for y in (a, b))
    return all(
        p.dtype == q.dtype and mx.array_equal(p, q, stream=mx.cpu)
        for p, q in zip(a, b, strict=True)
    )


WEIGHT = {"weight": (WIDTH,)}
FORMS = []


def form(op, exact, parameters, **options):
    def added(call):
        FORMS.append(Form(call.__name__, call, op, exact, parameters, **options))
        return call

    return added


@form("rms_norm", rms, WEIGHT)
def weight_first(self, x):
    return self.weight * (x * mx.rsqrt(x.square().mean(-1, keepdims=True) + self.eps))


@form("rms_norm", rms, WEIGHT, wide=True)
def back_before_the_weight(self, x):
    wide = x.astype(mx.float32)
    mean = (wide**2).mean(-1, keepdims=True)
    return (wide * mx.rsqrt(mean + self.eps)).astype(x.dtype) * self.weight


@form("rms_norm", rms, WEIGHT, wide=True)
def back_after_the_weight(self, x):
    dtype = x.dtype
    x = x.astype(mx.float32)
    x = x * mx.rsqrt(mx.mean(mx.square(x), axis=-1, keepdims=True) + self.eps)
    return (self.weight.astype(mx.float32) * x).astype(dtype)


@form("rms_norm", offset_rms, WEIGHT, wide=True)
def offset_and_divided(self, x):
    wide = x.astype(mx.float32)
    root = mx.sqrt(mx.mean(wide * wide, axis=-1, keepdims=True) + self.eps)
    return ((wide / root) * (1.0 + self.weight.astype(mx.float32))).astype(x.dtype)


@form("rms_norm", offset_rms, WEIGHT, wide=True)
def offset_after_the_weight(self, x):
    wide = x.astype(mx.float32)
    scale = mx.rsqrt(mx.mean(wide * wide, axis=-1, keepdims=True) + self.eps)
    return (wide * scale * (self.weight.astype(mx.float32) + 1)).astype(x.dtype)


@form("rms_norm", rms, WEIGHT, wide=True)
def narrow_times_wide(self, x):
    variance = mx.mean(mx.power(x.astype(mx.float32), 2), axis=-1, keepdims=True)
    normalized = x * mx.rsqrt(variance + self.eps)
    if self.weight.dtype in [mx.float16, mx.bfloat16]:
        normalized = normalized.astype(self.weight.dtype)
    return self.weight * normalized


@form("rms_norm", rms, WEIGHT)
def power_of_a_half(self, x):
    return x * mx.power((x * x).mean(axis=-1, keepdims=True) + self.eps, -0.5) * self.weight


@form("rms_norm", rms, WEIGHT)
def reciprocal(self, x):
    return x * (1 / mx.sqrt(mx.mean(x * x, -1, keepdims=True) + self.eps)) * self.weight


@form("rms_norm", rms, WEIGHT)
def sum_over_the_width(self, x):
    mean = mx.sum(x * x, axis=-1, keepdims=True) / x.shape[-1]
    return x * mx.rsqrt(mean + self.eps) * self.weight


@form("rms_norm", rms, WEIGHT)
def statistic_without_the_axis(self, x):
    scale = mx.rsqrt((x * x).mean(-1) + self.eps)
    return x * scale[..., None] * self.weight[None, None]


@form("rms_norm", rms, WEIGHT)
def weight_times_the_root(self, x):
    return x * (self.weight * mx.rsqrt((x * x).mean(-1, keepdims=True) + self.eps))


@form("rms_norm", lambda x: norm(x), {})
def in_place_of_its_own(self, x):
    value = x.astype(mx.float32)
    value *= mx.rsqrt(mx.mean(value * value, axis=-1, keepdims=True) + self.eps)
    return value.astype(x.dtype)


@form("rms_norm", lambda x: norm(x, axis=1), {}, shape=(2, WIDTH, 3, 4))
def channels(self, x):
    return x / mx.sqrt(mx.mean(x**2, axis=1, keepdims=True) + self.eps)


@form(
    "rms_norm",
    lambda x, weight: norm(x, axis=1) * weight,
    {"weight": (WIDTH, 1, 1)},
    shape=(2, WIDTH, 3, 4),
)
def channels_with_a_weight(self, x):
    return x * mx.rsqrt(mx.mean(x**2, axis=1, keepdims=True) + self.eps) * self.weight


@form("rms_norm", lambda x, weight: norm(x, eps=EPS / WIDTH) * weight, WEIGHT)
def root_of_the_width(self, x):
    return x * mx.rsqrt(mx.sum(x * x, -1, keepdims=True) + self.eps) * WIDTH**0.5 * self.weight


def bounded(x, weight, axis=-1):
    """The root is at least that of eps; all but few of the rows are longer."""
    return x / mx.sqrt(mx.maximum((x * x).mean(axis, keepdims=True), BOUND)) * weight


@form("rms_norm", bounded, WEIGHT, shape=(2, 40, WIDTH))
def bounded_mean(self, x):
    return x * mx.rsqrt(mx.maximum((x * x).mean(-1, keepdims=True), BOUND)) * self.weight


@form("rms_norm", bounded, WEIGHT, shape=(2, 40, WIDTH))
def bounded_length_and_the_root_of_the_width(self, x):
    length = mx.maximum(mx.sqrt((x * x).sum(-1, keepdims=True)), (BOUND * WIDTH) ** 0.5)
    return x / length * WIDTH**0.5 * self.weight


@form(
    "rms_norm",
    lambda x, weight: bounded(x, weight, axis=1),
    {"weight": (WIDTH, 1, 1)},
    shape=(2, WIDTH, 5, 8),
)
def bounded_length_of_channels(self, x):
    squares = mx.sum(x * x, axis=1, keepdims=True)
    length = mx.sqrt(mx.clip(squares, a_min=BOUND * WIDTH, a_max=None))
    return (x / length) * WIDTH**0.5 * self.weight


@form(
    "rms_norm",
    lambda x, weight: norm(x, axis=1) * weight[:, None],
    WEIGHT,
    shape=(2, WIDTH, 7),
    wide=True,
)
def channels_at_the_end(self, x):
    x = mx.transpose(x, (0, 2, 1))
    wide = x.astype(mx.float32)
    y = (wide * mx.rsqrt(mx.mean(wide**2, axis=-1, keepdims=True) + self.eps)).astype(x.dtype)
    return mx.transpose(y * self.weight, (0, 2, 1))


@form("rms_norm", rms, WEIGHT, shape=(2, 3, 4, WIDTH))
def other_axes_moved(self, x):
    x = x.transpose(2, 0, 1, 3)
    y = x * mx.rsqrt((x * x).mean(-1, keepdims=True) + self.eps) * self.weight
    return y.transpose(1, 2, 0, 3)


@form("rms_norm", rms, WEIGHT)
def sum_of_squares_of_shares(self, x):
    import math  # as code does that has few uses of it

    share = x * (1.0 / math.sqrt(x.shape[-1]))
    return x * mx.rsqrt(share.square().sum(-1, keepdims=True) + self.eps) * self.weight


@form(
    "rms_norm",
    lambda x, weight: bounded(x, weight),
    {"weight": (1,)},
    shape=(2, 40, WIDTH),
    inline=False,
)
def bounded_share_and_one_weight(self, x):
    length = mx.sqrt(mx.sum(x * x, axis=-1, keepdims=True)) * WIDTH**-0.5
    return x * (self.weight / mx.maximum(length, BOUND**0.5))


HEADS = {"weight": (4, WIDTH)}


@form("rms_norm", rms, HEADS, shape=(2, 5, 4, WIDTH), wide=True)
def weights_of_heads(self, x):
    wide = x.astype(mx.float32)
    wide = wide * mx.rsqrt(mx.mean(mx.square(wide), axis=-1, keepdims=True) + self.eps)
    return (wide * self.weight).astype(x.dtype)


@form("rms_norm", rms, HEADS, shape=(2, 5, 4, WIDTH), wide=True)
def weights_of_heads_after_rounding(self, x):
    wide = x.astype(mx.float32)
    wide = wide * mx.rsqrt(mx.mean(mx.square(wide), axis=-1, keepdims=True) + self.eps)
    return wide.astype(x.dtype) * self.weight


@form("layer_norm", layer_norm, {"weight": (5, WIDTH)})
def weights_of_rows(self, x):
    mean = mx.mean(x, axis=-1, keepdims=True)
    var = mx.var(x, axis=-1, keepdims=True)
    return (x - mean) / mx.sqrt(var + self.eps) * self.weight


@form("rms_norm", rms, WEIGHT)
def bias_that_it_has_not(self, x):
    y = x * mx.rsqrt((x * x).mean(-1, keepdims=True) + self.eps) * self.weight
    return y + self.bias if self.eps < 0 else y


@form("layer_norm", layer_norm, affine())
def mean_and_var(self, x):
    mean = mx.mean(x, axis=-1, keepdims=True)
    var = mx.var(x, axis=-1, keepdims=True)
    return (x - mean) / mx.sqrt(var + self.eps) * self.weight + self.bias


@form("layer_norm", layer_norm, affine(), wide=True)
def affine_in_float32(self, x):
    wide = x.astype(mx.float32)
    mean = wide.mean(-1, keepdims=True)
    y = (wide - mean) * mx.rsqrt(wide.var(-1, keepdims=True) + self.eps)
    return (self.bias + y * self.weight).astype(x.dtype)


@form("layer_norm", layer_norm, {}, wide=True)
def centered_once(self, x):
    wide = x.astype(mx.float32)
    wide = wide - wide.mean(axis=-1, keepdims=True)
    var = mx.mean(mx.square(wide), axis=-1, keepdims=True)
    return (wide * mx.rsqrt(var + self.eps)).astype(x.dtype)


@form("layer_norm", layer_norm, affine(), wide=True)
def mean_of_squares_less_squared_mean(self, x):
    wide = x.astype(mx.float32)
    mean = mx.mean(wide, axis=-1, keepdims=True)
    var = mx.mean(wide**2, axis=-1, keepdims=True) - mean**2
    return ((wide - mean) * mx.rsqrt(var + self.eps) * self.weight + self.bias).astype(x.dtype)


@form(
    "layer_norm",
    lambda x, weight, bias: norm(x, center=True, axis=1) * weight[:, None] + bias[:, None],
    affine(),
    shape=(2, WIDTH, 7),
)
def channels_of_audio(self, x):
    mean = x.mean(axis=1, keepdims=True)
    var = ((x - mean) ** 2).mean(axis=1, keepdims=True)
    x = (x - mean) / mx.sqrt(var + self.eps)
    return x * self.weight[:, None] + self.bias.reshape(1, -1, 1)


@form(
    "layer_norm",
    lambda x, weight, bias: (
        norm(x, center=True, axis=1) * weight[:, None, None] + bias[:, None, None]
    ),
    affine(),
    shape=(2, WIDTH, 3, 4),
)
def images_with_channels_at_the_end(self, x):
    x = mx.moveaxis(x, 1, -1)
    y = (x - x.mean(-1, keepdims=True)) * mx.rsqrt(x.var(-1, keepdims=True) + self.eps)
    return mx.moveaxis(y * self.weight + self.bias, -1, 1)


@form("l2_norm", lambda x: x / mx.sqrt((x * x).sum(-1, keepdims=True)), {})
def unit_length(self, x):
    return x / mx.maximum(mx.linalg.norm(x, axis=-1, keepdims=True), self.eps)


@form("l2_norm", lambda x: x / mx.sqrt((x * x).sum(-1, keepdims=True)), {})
def powers_of_magnitudes(self, x):
    length = mx.power(mx.sum(mx.power(mx.abs(x), 2.0), axis=-1, keepdims=True), 1 / 2.0)
    return x / mx.maximum(length, self.eps)


@form("l2_norm", lambda x: x / mx.sqrt((x * x).sum(-1, keepdims=True) + EPS), {})
def eps_under_the_root(self, x):
    return x * mx.rsqrt(mx.sum(x * x, axis=-1, keepdims=True) + self.eps)


@form("l2_norm", lambda x: x / mx.sqrt((x * x).sum(-1, keepdims=True) + EPS) * 0.125, {})
def unit_length_and_a_scale(self, x):
    wide = x * mx.rsqrt(mx.sum(x * x, axis=-1, keepdims=True) + self.eps)
    return 0.125 * wide


@form("l2_norm", lambda x, weight: x / mx.sqrt((x * x).sum(-1, keepdims=True)) * weight, WEIGHT)
def unit_length_and_a_weight(self, x):
    return x / mx.maximum(mx.linalg.norm(x, axis=-1, keepdims=True), self.eps) * self.weight


@form("l2_norm", lambda x: x / mx.sqrt((x * x).sum(-1, keepdims=True)) * 95**0.5, {})
def nearly_the_root_of_the_width(self, x):
    return x / mx.maximum(mx.linalg.norm(x, axis=-1, keepdims=True), self.eps) * 95**0.5
