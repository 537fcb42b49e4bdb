"""The steps of MLX's chains in float64, with how far off the same in fewer bits may be."""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass, replace

import mlx.core as mx

U = 2.0**-24
ROUNDOFF = {mx.float32: U, mx.float16: 2.0**-11, mx.bfloat16: 2.0**-8}
NORMAL = {mx.float32: 2.0**-126, mx.float16: 2.0**-14, mx.bfloat16: 2.0**-126}  # the smallest
# A few steps of float16's subnormals; those of the others are below any bound.
LEAST = {mx.float32: 0.0, mx.float16: 2.0**-22, mx.bfloat16: 0.0}
F16_MAX = 65504.0


@dataclass
class Exact:
    """A value in float64, and the errors of the same in fewer bits.

    Attributes:
        off: How far off it may be, before it is rounded to its dtype.
        dtype: What steps round to, unless they are ``late``: then in float32.
        unit: The roundoff of that rounding; 0 for what is given, or rounds late.
        to: The dtype of what is normalized of it, if that is another.
        way: An error of the arrays given, taken along by magnitudes; its derivatives are what the
            errors of gradients are relative to.
        given: The array that it is, if it is an argument or a sum that is rounded.
        terms: The magnitudes that it is a sum of, if they are not its own.
    """

    value: mx.array
    off: mx.array | float = 0.0
    dtype: mx.Dtype = mx.float32
    unit: float = 0.0
    late: bool = False
    to: mx.Dtype | None = None
    way: mx.array | float = 0.0
    given: mx.array | None = None
    terms: mx.array | None = None

    @property
    def shape(self):
        return self.value.shape

    @property
    def ndim(self):
        return self.value.ndim

    @property
    def size(self):
        return mx.abs(self.value) if self.terms is None else self.terms

    @property
    def wrong(self):
        """How far off what the next step reads may be."""
        if not self.unit:
            return self.off
        return self.off + self.unit * mx.maximum(mx.abs(self.value), NORMAL[self.dtype])

    def __add__(self, other):
        return plus(self, other)

    def __mul__(self, other):
        return times(self, other)

    __radd__, __rmul__ = __add__, __mul__

    def allowed(self, dtype: mx.Dtype) -> mx.array:
        """How far off a result may be that is rounded to this dtype."""
        return self.off + ROUNDOFF[dtype] * mx.abs(self.value) + LEAST[dtype]


def given(array: mx.array, *, dtype=None, late=False, to=None, value=None, way=0.0) -> Exact:
    value = array.astype(mx.float64) if value is None else value
    dtype = dtype or (mx.float32 if array.dtype == mx.float64 else array.dtype)
    return Exact(value, dtype=dtype, late=late, to=to, way=way, given=array)


def gradients(chain, arrays, cotangents, sizes=None) -> list[tuple[mx.array, mx.array]]:
    """Of a chain's ``values`` and, by its ``ways``, what their errors are relative to.

    ``sizes`` are what the errors of cotangents are relative to, if not to their magnitudes.
    """
    exactly = [a.astype(mx.float64) for a in arrays]
    cotangents = [c.astype(mx.float64) for c in cotangents]
    sizes = list(map(mx.abs, cotangents)) if sizes is None else sizes

    def values(*values):
        return [y.value for y in chain(values=values)]

    def ways(*ways):
        return [mx.broadcast_to(mx.array(y.way, mx.float64), y.shape) for y in chain(ways=ways)]

    none = [mx.zeros_like(a) for a in exactly]
    if not all(c.size for c in cotangents):  # over whose rows MLX's sums may not end
        return list(zip(none, none, strict=True))
    found = mx.vjp(values, exactly, cotangents)[1]
    return list(zip(found, mx.vjp(ways, none, sizes)[1], strict=True))


def exact(a, beside: Exact) -> Exact:
    """A number: early it has the dtype of the array beside it."""
    if isinstance(a, Exact):
        return a
    value = mx.array(a, mx.float64)
    value = value if beside.late else value.astype(beside.dtype).astype(mx.float64)
    return Exact(value, 0.0 if a == int(a) else U * abs(a), beside.dtype, late=beside.late)


def result_type(a, b):
    """The promotion of two of the three dtypes: only two equal ones stay 16 bits wide."""
    return a if a == b else mx.float32


def step(value, off, *of, steps=1, dtype=None, **more) -> Exact:
    """The result of some steps in float32, which is rounded."""
    late = any(o.late for o in of)
    dtype = dtype or functools.reduce(result_type, (o.dtype for o in of))
    unit = 0.0 if late or dtype == mx.float32 else ROUNDOFF[dtype]
    off = off + steps * U * mx.abs(value) if steps else off
    to = next((o.to for o in of if o.to), None)
    return Exact(value, off, dtype, unit, late, to, **more)


def terms_of(f, *of):
    """The magnitudes of a result, if those of an operand are not its own."""
    return f(*(o.size for o in of)) if any(o.terms is not None for o in of) else None


def plus(a, b, **more):
    b = exact(b, a)
    terms = terms_of(mx.add, a, b)
    return step(a.value + b.value, a.wrong + b.wrong, a, b, way=a.way + b.way, terms=terms, **more)


def times(a, b, **more):
    b = exact(b, a)
    off = along(b.wrong, mx.abs(a.value)) + along(a.wrong, mx.abs(b.value))
    if not isinstance(along(a.wrong, b.wrong), float):
        off = off + a.wrong * b.wrong
    way = along(b.way, a.size) + along(a.way, b.size)
    terms = terms_of(mx.multiply, a, b)
    return step(a.value * b.value, off, a, b, way=way, terms=terms, **more)


def along(off, by):
    """An error times what multiplies it, which may be infinite where there is none."""
    return 0.0 if isinstance(off, float) and not off else off * by


def total(x, *others, clamp=False):
    """The sum that an op rounds: its statistics are those of what is rounded."""
    to, way, value = x.to or others[0].dtype, x.way, x.value
    s, dtype, off, late, terms = x.given, x.dtype, 0.0, x.late, x.size
    for other in others:
        dtype = result_type(dtype, other.dtype)
        off, way, value = off + other.wrong, way + other.way, value + other.value
        terms = terms + other.size
        if other.given is not None and s is not None:
            s = (_wide(s) + _wide(other.given)).astype(dtype if s.dtype != mx.float64 else s.dtype)
        else:  # rounded as x is or, by the op, up to an ulp from that
            s, late = None, late or other.late
    if s is None:
        sums = U * mx.abs(value) + along(off, 1.0)
        found = Exact(value, sums, dtype, ROUNDOFF[dtype], late, to, way, None, terms)
    else:
        found = Exact(_as(s, value), 0.0, dtype, 0.0, late, to, way, s)
    if clamp and dtype == mx.float16:
        value = mx.clip(found.value, -F16_MAX, F16_MAX)
        saturated = mx.abs(value) == F16_MAX
        value = mx.where(saturated, mx.stop_gradient(value), value)
        way = mx.where(saturated, 0.0, found.way)
        rounded = None if s is None else mx.clip(_wide(s), -F16_MAX, F16_MAX).astype(dtype)
        found = replace(found, value=value, way=way, given=rounded)
    return found


def scaled(x, factor):
    """x by a factor: early, the product is rounded before it is added, if it is no wider."""
    a, dtype = x.given, x.dtype
    if a is None:
        return replace(times(x, factor), dtype=dtype)
    if not isinstance(factor, Exact):
        factor = given(mx.array(factor).astype(dtype))
    wide = a.dtype == mx.float64
    p = _wide(a) * (factor.value if wide else _wide(factor.given))
    early = not x.late and factor.given.dtype == dtype and not wide
    p = p.astype(dtype) if early else p
    way = along(x.way, mx.abs(factor.value)) + along(factor.way, mx.abs(x.value))
    value = _as(p, x.value * factor.value)
    return Exact(value, dtype=dtype, late=x.late, to=x.to, way=way, given=p)


def shifted(weight, offset):
    """A weight and its offset, which are added in float32."""
    return replace(weight, value=weight.value + offset, given=None)


def rms(x, weight=None, *, eps):
    return _affine(_normalized(x, *rows("rms", x.value, eps), steps=10), weight)


def layer(x, weight=None, bias=None, *, eps):
    n = _normalized(x, *rows("layer", x.value, eps), steps=17, least=1.0)
    return _affine(n, weight, bias)


def unit(x, *, eps, eps_inside):
    if eps_inside:
        return _normalized(x, *rows("unit", x.value, eps), steps=10, mean=_sum)
    d, root = rows("bounded unit", x.value, eps)
    # A root that eps stands for does not depend on x.
    varies = (root * eps < 1).astype(mx.float64) if eps else 1.0
    return _normalized(x, d, root, steps=10, mean=_sum, varies=varies)


def rows(of, x, eps):
    """What is normalized of rows, and the inverse of its root."""
    d = x - _mean(x) if of == "layer" else x
    square = _mean(d * d) if of in ("rms", "layer") else _sum(d * d)
    if of == "bounded unit":
        return d, mx.rsqrt(mx.maximum(square, eps * eps))
    return d, mx.rsqrt(square + eps)


def activated(name, z):
    if name is None:
        return z
    value, terms, slope, slope_terms = activation(name, z.value)
    unit = 0.0 if z.late or z.dtype == mx.float32 else ROUNDOFF[z.dtype]
    bends = 1.0 if name == "relu2" else 0.25
    off = along(z.wrong, mx.abs(slope) + bends * z.wrong) + 12 * U * terms
    if unit:  # its steps round, too
        size = dict(sigmoid=1.0, relu2=z.value * z.value).get(name, mx.abs(z.value))
        before = mx.minimum(5 * terms, 2 * size - mx.abs(value))  # the last one
        off = off + unit * (before + 3 * NORMAL[z.dtype])
        if z.dtype == mx.float16 and name in ("silu", "sigmoid"):  # whose exponentials overflow
            far = mx.where(mx.abs(z.value) > 11, sigmoid(-mx.abs(z.value)), 0.0)
            off = off + (far if name == "sigmoid" else far * mx.abs(z.value))
    # The slope's error is that of z, which is larger than z's own size where terms cancel.
    bent = mx.maximum(mx.abs(z.value), along(z.off, bends / (8 * U)))
    of_slope = slope_terms if z.given is not None else slope_terms + bent
    return step(value, off, z, steps=0, way=along(z.way, of_slope), terms=terms)


def activation(name, z):
    """The value and the slope, each with the magnitudes that its errors are relative to."""
    size = mx.abs(z)
    if name == "relu2":
        part = mx.maximum(z, 0)
        return part * part, z * z, 2 * part, 2 * size
    if name == "gelu":
        e = erf(z / math.sqrt(2))
        density = z * exp(-0.5 * z * z) / math.sqrt(2 * math.pi)
        of_slope = (1 + mx.abs(e)) / 2 + mx.abs(density) * (1 + z * z)
        return z * (1 + e) / 2, size * (1 + mx.abs(e)), (1 + e) / 2 + density, of_slope
    s = sigmoid(z)
    of_s = s * (1 + size * (1 - s))
    if name == "sigmoid":
        return s, of_s + (z > 0), s * (1 - s), s * (1 + size)
    return z * s, size * (of_s + (z > 0)), s + z * s * (1 - s), of_s * (1 + size)


# MLX's exp, erf, sin and cos of float64 have no more digits than those of float32.
def of_elements(f, a):
    return mx.array(list(map(f, mx.flatten(a).tolist())), mx.float64).reshape(a.shape)


def sigmoid(z):
    return (1 + mx.tanh(z / 2)) / 2


def exp(z):
    """Of numbers that are not above 0."""
    t = mx.tanh(z / 2)
    return (1 + t) / (1 - t)


@mx.custom_function
def erf(z):
    return of_elements(math.erf, z)


@erf.vjp
def _(z, cotangent, _):
    return cotangent * exp(-z * z) * (2 / math.sqrt(math.pi))


@erf.jvp
def _(z, tangent):
    return tangent * exp(-z * z) * (2 / math.sqrt(math.pi))


def moved(f, x):
    """What is x in another shape or order."""

    def of(a):
        return a if a is None or isinstance(a, float) else f(mx.broadcast_to(a, x.shape))

    return replace(
        x, value=f(x.value), off=of(x.off), way=of(x.way), given=of(x.given), terms=of(x.terms)
    )


def rope(x, dims, *, base, offset=0, traditional=False):
    """Of [batch, heads, tokens, head_dim]."""
    positions = (mx.arange(x.shape[-2]) + offset).astype(mx.float64)[:, None]
    exponents = mx.arange(dims // 2).astype(mx.float64) / (dims // 2)
    theta = positions * of_elements(lambda e: base**-e, exponents)
    # The angle is a float32, as are its frequency and, on GPUs, the logarithm of that.
    off = (4 + 3 * math.log(base) * exponents) * U * mx.abs(theta)
    return rotated(x, theta, off, traditional=traditional)


def rotated(x, theta, off, *, traditional=False, trig=4 * U):
    """The pairs of the first elements by angles, which may be off, as sines and cosines may."""
    half = theta.shape[-1]
    cos, sin = of_elements(math.cos, theta), of_elements(math.sin, theta)

    def halves(a):
        if traditional:
            return a[..., : 2 * half : 2], a[..., 1 : 2 * half : 2], a[..., 2 * half :]
        return a[..., :half], a[..., half : 2 * half], a[..., 2 * half :]

    def whole(a, b, tail):
        if traditional:
            a, b = mx.flatten(mx.stack([a, b], axis=-1), -2, -1), b[..., :0]
        return mx.concatenate([a, b, tail], axis=-1)

    def by_magnitudes(a):
        if isinstance(a, float):
            return a
        a, b, tail = halves(mx.broadcast_to(a, x.shape))
        c, s = mx.abs(cos), mx.abs(sin)
        return whole(a * c + b * s, a * s + b * c, tail)

    a, b, tail = halves(x.value)
    value = whole(a * cos - b * sin, a * sin + b * cos, tail)
    late = x.late or x.dtype == mx.float32
    each = 3 * U + (0.0 if late else 3 * ROUNDOFF[x.dtype])
    least = 0.0 if late else 4 * ROUNDOFF[x.dtype] * NORMAL[x.dtype]
    both = (mx.abs(a) + mx.abs(b)) * (off + trig) + least
    c, s = mx.abs(cos), mx.abs(sin)
    first, second = (each * (mx.abs(a) * by + mx.abs(b) * of) + both for by, of in ((c, s), (s, c)))
    wrong = whole(first, second, 0 * tail)
    terms = None if x.terms is None else by_magnitudes(x.terms)
    off = by_magnitudes(x.wrong) + wrong
    return step(value, off, x, steps=0, way=by_magnitudes(x.way), terms=terms)


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
        # A mean of many deviations is subtracted.
        terms = mx.abs(n) + 1 + mx.abs(mean.value) * root
        by_var = terms * root * root
        off = 24 * U * terms + along(var.wrong, by_var / 2)
        way = along(x.way, root) + along(mean.way, root) + along(var.way, by_var)
        y = _affine(Exact(n, off, late=True, way=way, terms=terms), *parameters)
    if mean is None or not training:
        return y
    rows = tuple(range(x.ndim - 1))
    count = math.prod(x.shape[:-1])
    of_x = mx.mean(x.value, axis=rows)
    spread = mx.mean(mx.square(x.value - of_x), axis=rows) * (count / max(count - 1, 1))
    new_mean = (1 - momentum) * mean.value + momentum * of_x
    new_var = (1 - momentum) * var.value + momentum * spread
    size = mx.abs(mean.value) + mx.mean(mx.abs(x.value), axis=rows)
    # MLX's ops, which round to the statistics' dtype.
    of_mean = (16 * U + 2 * ROUNDOFF[mean.dtype]) * size
    of_var = (16 * U + 2 * ROUNDOFF[var.dtype]) * new_var + along(var.wrong, 1.0)
    way_of_x = mx.broadcast_to(mx.array(x.way, mx.float64), x.shape)
    d = 2 * (mx.abs(x.value - of_x) + mx.mean(mx.abs(x.value - of_x), axis=rows))
    ways = [
        (1 - momentum) * mean.way + momentum * mx.mean(way_of_x, axis=rows),
        (1 - momentum) * var.way + momentum * mx.sum(d * way_of_x, axis=rows) / max(count - 1, 1),
    ]
    means = ((new_mean, of_mean, ways[0]), (new_var, of_var, ways[1]))
    return [y, *(Exact(a, off, mean.dtype, way=way) for a, off, way in means)]


def product(x, matrix, offset=None):
    """x by the transpose of a matrix."""
    y = matmul(x, moved(lambda a: a.T, matrix))
    return y if offset is None else y + offset


def matmul(a, b):
    x, y = mx.abs(a.value), mx.abs(b.value)
    off = _product(a.wrong, y, a) + _product(x, b.wrong, b)
    way = _product(a.way, b.size, a) + _product(a.size, b.way, b)
    terms = a.size @ b.size
    return step(a.value @ b.value, off + 16 * U * terms, a, b, way=way, terms=terms)


def quantized(x, *parts, group_size, bits):
    w, *of_groups = parts
    wide = (a.astype(mx.float32) for a in of_groups)
    y = product(x, given(mx.dequantize(w, *wide, group_size, bits)))
    # MLX adds up in the dtype on the CPU.
    return replace(y, off=y.off + w.shape[-1] * ROUNDOFF[x.dtype] * y.size, dtype=x.dtype)


def _wide(a):
    return a if a.dtype == mx.float64 else a.astype(mx.float32)


def _as(rounded, value):
    """What is rounded, with the derivative of what is not."""
    value = mx.where(mx.isfinite(value), value, 0.0)
    return mx.stop_gradient(rounded.astype(mx.float64) - value) + value


def _sum(a):
    return mx.sum(a, axis=-1, keepdims=True)


def _mean(a):
    return _sum(a) / max(a.shape[-1], 1)


def _product(a, b, of):
    return 0.0 if isinstance(a, float) or isinstance(b, float) else a @ b


def _normalized(x, centered, root, *, steps, least=0.0, mean=_mean, varies=1.0):
    """By a root, whose errors are those of all elements of the row, if these are results."""
    value = centered * root
    n = mx.abs(value)
    terms = n + least if least else None
    if x.terms is not None:
        terms = n + x.terms * root

    def of_row(by, n):
        if isinstance(by, float):
            return by
        by = mx.broadcast_to(by, x.shape) * root
        row = by + n * mean(n * by) * varies
        return row + mean(by) if least else row

    off = of_row(x.wrong, n) + steps * U * (n + least)
    way = of_row(x.way, n if x.terms is None else terms)
    return step(value, off, x, steps=0, dtype=x.to or x.dtype, way=way, terms=terms)


def _affine(n, weight=None, bias=None):
    """The steps of one kernel, whose errors are those of its norm."""
    y = n if weight is None else times(n, weight, steps=0, dtype=n.dtype)
    return y if bias is None else plus(y, bias, dtype=n.dtype)


def _grouped(x, samples, groups, adjoining, eps):
    """In float32, whatever the dtype."""
    channels = x.shape[-1]
    each = channels // groups
    split, axes = ((groups, each), (1, 3)) if adjoining else ((each, groups), (1, 2))

    def parts(a):
        return a.reshape(samples, math.prod(x.shape[:-1]) // max(samples, 1), *split)

    def mean(a):
        return mx.mean(a, axis=axes, keepdims=True)

    d = parts(x.value) - mean(parts(x.value))
    root = mx.rsqrt(mean(d * d) + eps)
    n = d * root
    terms, way = mx.abs(n) + 1, x.way
    if not isinstance(way, float):
        way = parts(mx.broadcast_to(way, x.shape)) * root
        way = (way + mean(way) + terms * mean(way * terms)).reshape(x.shape)
    n, terms = n.reshape(x.shape), terms.reshape(x.shape)
    return Exact(n, 24 * U * terms, late=True, way=way, terms=terms)
