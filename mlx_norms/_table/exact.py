"""The steps of MLX's chains in float64, with how far off the same in fewer bits may be."""

from __future__ import annotations

import math
from dataclasses import dataclass

import mlx.core as mx

FLOAT32 = 16 * 2.0**-24
ROUNDOFF = {mx.float32: 2.0**-24, mx.float16: 2.0**-11, mx.bfloat16: 2.0**-8}
# A few steps of float16's subnormals; those of the others are below any bound.
LEAST = {mx.float32: 0.0, mx.float16: 2.0**-22, mx.bfloat16: 0.0}


@dataclass
class Exact:
    """A value in float64, and what the errors of the same in fewer bits are relative to.

    Attributes:
        size: The sum of the magnitudes that it is a sum of, for the errors of float32.
        wrong: How far off it is, in units of roundoff, where each step rounds to the dtype.
        given: The array that it is, if it is an argument or a sum that is rounded.
    """

    value: mx.array
    size: mx.array
    wrong: mx.array | float = 0.0
    given: mx.array | None = None

    @property
    def shape(self):
        return self.value.shape

    @property
    def ndim(self):
        return self.value.ndim

    def __add__(self, other):
        other = exact(other)
        return rounded(self.value + other.value, self.size + other.size, self.wrong + other.wrong)

    def __mul__(self, other):
        other = exact(other)
        wrong = self.wrong * mx.abs(other.value) + other.wrong * mx.abs(self.value)
        return rounded(self.value * other.value, self.size * other.size, wrong)

    __radd__, __rmul__ = __add__, __mul__

    def allowed(self, dtype: mx.Dtype) -> mx.array:
        """How far off a result may be that is computed in this dtype."""
        wrong = mx.maximum(self.wrong, mx.abs(self.value))
        return FLOAT32 * self.size + ROUNDOFF[dtype] * wrong + LEAST[dtype]


def given(array: mx.array) -> Exact:
    value = array.astype(mx.float64)
    return Exact(value, mx.abs(value), 0.0, array)


def exact(a) -> Exact:
    """A number, which rounds if it is no integer."""
    if isinstance(a, Exact):
        return a
    value = mx.array(a, mx.float64)
    return Exact(value, mx.abs(value), 0.0 if a == int(a) else mx.abs(value))


def rounded(value, size, wrong) -> Exact:
    """The result of a step."""
    return Exact(value, size, wrong + mx.abs(value))


def total(x, *others):
    """The sum that an op rounds: its statistics are those of what is rounded."""
    s, result = x.given, None
    for other in others:
        part = other.given
        if part is None:  # rounded as x is or, by the op, up to an ulp from that
            part, result = other.value.astype(s.dtype), other
        s = s + part
    if result is None:
        return given(s)
    value = s.astype(mx.float64)
    wrong = result.wrong + mx.abs(result.value) + mx.abs(value)
    return rounded(value, mx.abs(value) + result.size, wrong)


def scaled(x, factor):
    """x by a factor, which is rounded before it is added."""
    return given(x.given * (factor.given if isinstance(factor, Exact) else factor))


def rms(x, weight=None, *, eps):
    squares = mx.mean(x.value * x.value, axis=-1, keepdims=True)
    n = _normalized(x, x.value, mx.rsqrt(squares + eps))
    return n if weight is None else n * weight


def layer(x, weight=None, bias=None, *, eps):
    d = x.value - mx.mean(x.value, axis=-1, keepdims=True)
    n = _normalized(x, d, mx.rsqrt(mx.mean(d * d, axis=-1, keepdims=True) + eps))
    return _affine(Exact(n.value, n.size + 1, n.wrong), weight, bias)  # a difference may cancel


def unit(x, *, eps, eps_inside):
    squares = mx.sum(x.value * x.value, axis=-1, keepdims=True)
    root = mx.rsqrt(squares + eps) if eps_inside else 1 / mx.maximum(mx.sqrt(squares), eps)
    return _normalized(x, x.value, root)


def activated(name, z):
    if name is None:
        return z
    value, size = _activated(name, z.value)
    slope = 2 * mx.abs(z.value) if name == "relu2" else 1.13  # at most
    return Exact(value, size + slope * z.size, slope * z.wrong + 2 * size)


def _activated(name, z):
    """The value, and the largest of its steps."""
    if name == "gelu":
        return z * (1 + mx.erf(z / mx.array(2.0, mx.float64).sqrt())) / 2, mx.abs(z)
    if name == "relu2":
        return mx.maximum(z, 0) ** 2, z * z
    s = 1 / (1 + mx.exp(-z))
    return (s, mx.ones_like(s)) if name == "sigmoid" else (z * s, mx.abs(z))


def moved(f, x):
    """What is x in another shape or order."""
    size, wrong = (f(mx.broadcast_to(a, x.shape)) for a in (x.size, x.wrong))
    return Exact(f(x.value), size, wrong, x.given if x.given is None else f(x.given))


def rope(x, dims, *, base, offset=0, traditional=False):
    """Of [batch, heads, tokens, head_dim]."""

    def halves(a):
        if traditional:
            return a[..., :dims:2], a[..., 1:dims:2], a[..., dims:]
        return a[..., : dims // 2], a[..., dims // 2 : dims], a[..., dims:]

    def whole(a, b, tail):
        if traditional:
            a, b = mx.flatten(mx.stack([a, b], axis=-1), -2, -1), b[..., :0]
        return mx.concatenate([a, b, tail], axis=-1)

    def of_both(size):
        a, b, tail = halves(mx.broadcast_to(size, x.shape))
        return whole(a + b, a + b, tail)

    a, b, tail = halves(x.value)
    positions = (mx.arange(x.shape[-2]) + offset).astype(mx.float64)[:, None]
    exponents = mx.arange(dims // 2).astype(mx.float64) / (dims // 2)
    theta = positions * mx.array(base, mx.float64) ** -exponents
    cos, sin = mx.cos(theta), mx.sin(theta)
    value = whole(a * cos - b * sin, a * sin + b * cos, tail)
    # The sine and cosine round, too; their angle is a float32.
    return Exact(value, 4 * of_both(x.size), of_both(x.wrong + 3 * mx.abs(x.value)))


def group(x, *parameters, groups, compatible, eps):
    return _affine(_grouped(x, x.shape[0], groups, compatible, eps), *parameters)


def instance(x, *parameters, eps):
    return _affine(_grouped(x, x.shape[0], x.shape[-1], True, eps), *parameters)


def batch(x, *parameters, mean=None, var=None, training, momentum, eps):
    if training or mean is None:
        y = _affine(_grouped(x, 1, x.shape[-1], True, eps), *parameters)
    else:
        root = mx.rsqrt(var.value + eps)
        n = (x.value - mean.value) * root
        size = (mx.abs(x.value) + mx.abs(mean.value)) * root
        wrong = size + mx.abs(n) * var.wrong / (2 * (var.value + eps))
        y = _affine(rounded(n, size, wrong), *parameters)
    if mean is None or not training:
        return y
    rows = tuple(range(x.ndim - 1))
    count = math.prod(x.shape[:-1])
    of_x = mx.mean(x.value, axis=rows)
    spread = mx.mean(mx.square(x.value - of_x), axis=rows) * (count / max(count - 1, 1))
    new_mean = (1 - momentum) * mean.value + momentum * of_x
    new_var = (1 - momentum) * var.value + momentum * spread
    size = mx.abs(mean.value) + mx.mean(mx.abs(x.value), axis=rows)
    return [y, rounded(new_mean, size, size), rounded(new_var, new_var, var.wrong + new_var)]


def product(x, matrix, offset=None):
    """x by the transpose of a matrix."""
    y = matmul(x, moved(lambda a: a.T, matrix))
    return y if offset is None else y + offset


def matmul(a, b):
    wrong = mx.broadcast_to(a.wrong, a.shape) @ mx.abs(b.value)
    return rounded(a.value @ b.value, a.size @ b.size, wrong)


def quantized(x, *parts, group_size, bits):
    w, *of_groups = parts
    wide = (a.astype(mx.float32) for a in of_groups)
    y = product(x, given(mx.dequantize(w, *wide, group_size, bits)))
    return rounded(y.value, y.size, w.shape[-1] * y.size)  # MLX adds up in the dtype on the CPU


def _normalized(x, centered, root):
    """By a root, whose errors are those of all elements of the row, if these are results."""
    value = centered * root
    n = mx.abs(value)

    def off(by):
        by = by * root
        return by + n * mx.mean(n * by, axis=-1, keepdims=True)

    if x.given is not None:
        return rounded(value, n, 0.0)
    return rounded(value, n + off(x.size), off(mx.broadcast_to(x.wrong, x.shape)))


def _affine(n, weight=None, bias=None):
    y = n if weight is None else n * weight
    return y if bias is None else y + bias


def _grouped(x, samples, groups, adjoining, eps):
    channels = x.shape[-1]
    each = channels // groups
    split, axes = ((groups, each), (1, 3)) if adjoining else ((each, groups), (1, 2))
    parts = x.value.reshape(samples, math.prod(x.shape[:-1]) // samples, *split)
    d = parts - mx.mean(parts, axis=axes, keepdims=True)
    squares = mx.mean(d * d, axis=axes, keepdims=True)
    n = (d * mx.rsqrt(squares + eps)).reshape(x.shape)
    return rounded(n, mx.abs(n) + 1, 0.0)
