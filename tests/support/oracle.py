"""A float64 reference on the quantized inputs, with the error that the arithmetic may have.

An op is correct if |got - truth| <= k * u * S + half an ulp of the output:

* float32 arithmetic: u = 2**-24, k = 10 (rms) or 18 (layer), and 14 for the gradient of what an rms
  norm normalizes; a cast of the normalized value to the output dtype T before the weight adds k = 2
  with u of T, and half of T's smallest subnormal times all that multiplies the value after it;
* S is the sum of the absolute values of the terms that are summed: |y| for rms, |n w| + |w| + |b|
  for layer (n is a difference that may cancel to zero, of terms of about 1), and for a gradient
  the sum that defines it, with absolute values inside.

The bound covers the rounding inside an op. Only the rounding of x + residual is modeled, because
the statistics are those of the rounded sum.
"""

from dataclasses import dataclass

import mlx.core as mx
import numpy as np

from . import gated_oracle
from .norm_case import addends, describe, result_type

F16_MAX = 65504.0
# Bits of the significand, exponent of the smallest normal, largest finite value.
FORMATS = {
    mx.float32: (24, -126, (2.0 - 2.0**-23) * 2.0**127),
    mx.float16: (11, -14, F16_MAX),
    mx.bfloat16: (8, -126, (2.0 - 2.0**-7) * 2.0**127),
}


def unit_roundoff(dtype):
    return 2.0 ** -FORMATS[dtype][0]


def smallest(dtype):
    """The smallest subnormal."""
    bits, emin, _ = FORMATS[dtype]
    return 2.0 ** (emin - bits + 1)


def ulp(value, dtype):
    """Spacing of ``dtype`` at ``value``: constant below its normals and above its largest value."""
    bits, emin, largest = FORMATS[dtype]
    exponent = (np.minimum(np.abs(value), largest).view(np.int64) >> 52) - 1023
    return ((np.maximum(exponent, emin) - (bits - 1) + 1023) << 52).view(np.float64)


def numpy32(a):
    """An array of any of the three dtypes as float32, which holds it exactly."""
    return np.asarray(a.astype(mx.float32, stream=mx.cpu))


def exact(a):
    return numpy32(a).astype(np.float64)


def round_to(value, dtype):
    """Float32 NumPy values rounded to ``dtype``, as float32."""
    return numpy32(mx.array(value, dtype=mx.float32).astype(dtype, stream=mx.cpu))


@dataclass
class Truth:
    """The exact values of one output, and how far arithmetic errors may take a result from them."""

    value: np.ndarray
    slack: np.ndarray | float
    dtype: mx.Dtype
    config: str

    def check(self, got, note=""):
        __tracebackhide__ = True
        config = f"{self.config} {note}"
        assert got.dtype == self.dtype, f"{config}: dtype {got.dtype}, not {self.dtype}"
        assert got.shape == self.value.shape, f"{config}: shape {got.shape}, not {self.value.shape}"
        got = exact(got)
        with np.errstate(invalid="ignore"):
            bound = self.slack + 0.5 * ulp(self.value, self.dtype)
            right = np.abs(got - self.value) <= bound
        if right.all():
            return
        right |= np.isnan(got) & np.isnan(self.value)
        right |= np.isinf(got) & self._may_overflow(got)
        if right.all():
            return
        at = tuple(int(i[0]) for i in np.nonzero(~right))
        off = np.abs(got[at] - self.value[at]) / np.broadcast_to(bound, got.shape)[at]
        raise AssertionError(
            f"{config}: {np.sum(~right)} of {right.size} values are wrong, first at {at}: "
            f"got {got[at]:.9g}, truth {self.value[at]:.9g}, {off:.3g} times the bound"
        )

    def _may_overflow(self, got):
        """Where a value that rounds to the infinity of got's sign is within the bound."""
        _, _, largest = FORMATS[self.dtype]
        limit = largest + 0.5 * ulp(np.float64(largest), self.dtype)
        with np.errstate(invalid="ignore"):
            return np.sign(got) * self.value + self.slack >= limit


def mean(a):
    return a.sum(-1, keepdims=True) / max(a.shape[-1], 1)


def statistics(norm, s):
    """The normalized values and the reciprocal roots of the rows of s."""
    with np.errstate(invalid="ignore", divide="ignore", over="ignore"):
        centered = s - mean(s) if norm.layer else s
        square = measure(norm, centered * centered)
        if bounded(norm):
            rstd = 1.0 / np.maximum(np.sqrt(square), norm.eps)
        else:
            rstd = 1.0 / np.sqrt(square + norm.eps)
        return centered * rstd, rstd


def measure(norm, a):
    """The mean over the last axis or, for an l2 norm, the sum."""
    return a.sum(-1, keepdims=True) if norm.l2 else mean(a)


def bounded(norm):
    """Whether eps is the least root, instead of being added under it."""
    return norm.l2 and not norm.eps_inside


def rounded_sum(norm, arrays):
    """s as the statistics see it: sums rounded to their dtypes, clamped if requested."""
    if not norm.adds:
        return exact(arrays["x"])
    dtype = norm.sum_dtype(arrays)
    # Rounding to float32 and then to 16 bits gives the same as rounding once.
    with np.errstate(over="ignore", invalid="ignore"):
        s, _, *others = product(norm, arrays), *addends(arrays).values()
        to = arrays["x"].dtype
        for other in others:
            to = result_type(to, other.dtype)
            s = round_to(s + numpy32(other), to)
    s = s.astype(np.float64)
    if norm.clamp and dtype == mx.float16:
        s = np.clip(s, -F16_MAX, F16_MAX)
    return s


def factor_of_x(norm, arrays):
    """What x is multiplied by before it is added; a number counts in x's dtype."""
    if arrays.get("factor") is not None:
        return numpy32(arrays["factor"])
    number = 1.0 if norm.factor is None else norm.factor
    return round_to(np.float32(number), arrays["x"].dtype)


def product(norm, arrays):
    """factor * x in float32, rounded early to x's dtype if no other is wider."""
    x, factor = arrays["x"], arrays.get("factor")
    p = numpy32(x) * factor_of_x(norm, arrays)
    widens = factor is not None and factor.dtype != x.dtype
    return p if widens or not norm.is_early else round_to(p, x.dtype)


def is_factored(norm, arrays):
    return norm.factor is not None or arrays.get("factor") is not None


def forward(norm, arrays):
    """The truth of the normalized output and, for the ops that add a residual, of the sum."""
    if gated_oracle.is_gated(norm, arrays):
        return gated_oracle.forward(norm, arrays)
    config = describe(norm, arrays)
    dtype = norm.out_dtype(arrays)
    s = rounded_sum(norm, arrays)
    y, _ = statistics(norm, s)
    scale = 1.0
    if arrays.get("weight") is not None:
        w = exact(arrays["weight"]) + norm.weight_offset
        y *= w
        scale = np.abs(w)
    size = np.abs(y)
    if norm.layer:
        size += scale
    if arrays.get("bias") is not None:
        b = exact(arrays["bias"])
        y += b
        size += np.abs(b)
    casts = early_cast(norm, arrays)
    if is_modulated(arrays):
        y, size = modulated(norm, arrays, y, size)
        scale = np.abs(factor(arrays)) * scale
        casts = early_steps(norm, arrays)
    size *= arithmetic(norm, arrays) + casts
    if norm.casts_early(arrays):
        size += underflow(dtype) * early_underflows(norm, arrays, scale)
    truths = [Truth(y, size, dtype, config + " norm")]
    if norm.adds:
        truths.append(Truth(s, 0.0, norm.sum_dtype(arrays), config + " sum"))
    return truths


def is_modulated(arrays):
    return any(arrays.get(name) is not None for name in ("scale", "shift"))


def factor(arrays):
    scale = arrays.get("scale")
    return 1.0 if scale is None else 1.0 + exact(scale)


def modulated(norm, arrays, y, size):
    """y * (1 + scale) + shift, and the same of absolute values; early steps round to 16 bits."""
    shift = arrays.get("shift")
    t = 0.0 if shift is None else exact(shift)
    return y * factor(arrays) + t, size * np.abs(factor(arrays)) + np.abs(t)


def to_shape(a, shape):
    """The sum of an array over what one of this shape is broadcast to."""
    a = a.sum(tuple(range(a.ndim - len(shape))))
    axes = tuple(i for i, n in enumerate(shape[:-1]) if n == 1)
    return a.sum(axes, keepdims=True)


def arithmetic(norm, arrays, of_input=False):
    """k u of float32, with 4 more for 1 + scale and its product.

    The gradient of the input is r (gw - n mean(gw n)): 2 roundings of gw, 13 of what is subtracted,
    with n twice, and 5 after that are 12.5 of S if the two are alike, even without those of sums,
    of which a row of some hundreds has about 2.
    """
    k = (18 if norm.layer else 14 if of_input else 10) + 4 * is_modulated(arrays)
    return k * unit_roundoff(mx.float32)


def early_cast(norm, arrays):
    """k u of the early cast, if there is one."""
    if not norm.casts_early(arrays):
        return 0.0
    return 2 * unit_roundoff(norm.out_dtype(arrays))


def early_steps(norm, arrays):
    """k u of what rounds early around a scale and a shift."""
    if not norm.is_early:
        return 0.0
    steps = 6 * unit_roundoff(norm.out_dtype(arrays)) if norm.casts_early(arrays) else 0.0
    scale = arrays.get("scale")
    return steps + (0.0 if scale is None else unit_roundoff(scale.dtype))


def early_underflows(norm, arrays, scale):
    """What multiplies the loss of each early rounding before the last: of n, of n w + b, and of
    the product with 1 + scale, unless a wider scale makes that float32."""
    times = scale
    if is_modulated(arrays):
        if arrays.get("weight") is not None or arrays.get("bias") is not None:
            times = times + np.abs(factor(arrays))
        by = arrays.get("scale")
        if by is not None and result_type(norm.out_dtype(arrays), by.dtype) != mx.float32:
            times = times + 1.0
    return times


def underflow(dtype):
    """How much a cast of the normalized value to a subnormal may lose."""
    return 0.5 * smallest(dtype)


def gradients(norm, arrays, cotangent=None, sum_cotangent=None):
    """The truth of each array's gradient for these cotangents; None stands for zero."""
    if gated_oracle.is_gated(norm, arrays):
        return gated_oracle.gradients(norm, arrays, cotangent)
    config = describe(norm, arrays)
    s = rounded_sum(norm, arrays)
    w = exact(arrays["weight"]) if arrays.get("weight") is not None else None
    g = None if cotangent is None else exact(cotangent)
    gs = None if sum_cotangent is None else exact(sum_cotangent)
    g_weighted = None if g is None else g * factor(arrays)
    bias_axes = arrays["bias"].ndim if arrays.get("bias") is not None else 1
    values, sizes = gradient_values(norm, s, w, g_weighted, gs, bias_axes)
    if is_modulated(arrays):
        add_modulation(norm, arrays, s, np.zeros_like(s) if g is None else g, values, sizes)
    if norm.clamp and norm.sum_dtype(arrays) == mx.float16:
        values["s"] = np.where(np.abs(s) == F16_MAX, 0.0, values["s"])
    truths = {}
    if is_factored(norm, arrays):
        add_factor(norm, arrays, values, sizes)
    for name, a in arrays.items():
        if a is None:
            continue
        key = "s" if name in addends(arrays) and name not in values else name
        value, size = values[key], sizes[key]
        slack = arithmetic(norm, arrays, of_input=name in (*addends(arrays), "factor")) * size
        if name == "weight":
            slack = slack + early_cast(norm, arrays) * size
            if norm.casts_early(arrays) and g is not None:
                slack = slack + underflow(norm.out_dtype(arrays)) * over_rows(np.abs(g), w.ndim)
        if name == "shift":  # MLX adds these up, one after another
            slack = slack + s.size // max(a.size, 1) * unit_roundoff(mx.float32) * size
        if is_factored(norm, arrays) and name in ("x", "factor"):
            # They are of the sum's gradient in the sum's dtype.
            dtype = norm.sum_dtype(arrays)
            slack = (
                slack
                + unit_roundoff(dtype) * size
                + underflow(dtype) * multiplied(norm, arrays, name)
            )
        truths[name] = Truth(value, slack, a.dtype, f"{config} gradient of {name}")
    return truths


def multiplied(norm, arrays, name):
    """What the sum's gradient is multiplied by in that of x or of its factor, in magnitude."""
    if name == "x":
        return np.abs(factor_of_x(norm, arrays))
    return to_shape(np.abs(exact(arrays["x"])), arrays["factor"].shape)


def add_factor(norm, arrays, values, sizes):
    """The gradients of x and of its factor, like gradient_values."""
    f, x = factor_of_x(norm, arrays).astype(np.float64), exact(arrays["x"])
    for of, by in ((values, (f, x)), (sizes, (np.abs(f), np.abs(x)))):
        of["x"] = of["s"] * by[0]
        if arrays.get("factor") is not None:
            of["factor"] = to_shape(of["s"] * by[1], arrays["factor"].shape)


def add_modulation(norm, arrays, s, g, values, sizes):
    """The gradients of scale and shift, like gradient_values."""
    n, _ = statistics(norm, s)
    weight, bias = arrays.get("weight"), arrays.get("bias")
    w = 1.0 if weight is None else exact(weight) + norm.weight_offset
    b = 0.0 if bias is None else exact(bias)
    size = (np.abs(n) + norm.layer) * np.abs(w) + np.abs(b)
    for name, of, of_size in (("scale", n * w + b, size), ("shift", 1.0, 1.0)):
        if arrays.get(name) is not None:
            values[name] = to_shape(g * of, arrays[name].shape)
            sizes[name] = to_shape(np.abs(g) * of_size, arrays[name].shape)


def gradient_values(norm, s, w, g, gs=None, bias_axes=1):
    """Gradients of s, weight and bias in float64, and the same sums with absolute values."""
    values = {"s": np.zeros_like(s)}
    sizes = {"s": np.zeros_like(s)}
    axes = 1 if w is None else w.ndim
    for name in ("weight", "bias"):
        of = axes if name == "weight" else bias_axes
        values[name] = np.zeros(s.shape[s.ndim - of :])
        sizes[name] = values[name]
    if g is not None:
        n, rstd = statistics(norm, s)
        gn = g * n
        n_size = np.abs(n) + 1.0 if norm.layer else np.abs(n)
        values["weight"] = over_rows(gn, axes)
        sizes["weight"] = over_rows(np.abs(g) * n_size, axes)
        values["bias"] = over_rows(g, bias_axes)
        sizes["bias"] = over_rows(np.abs(g), bias_axes)
        gw = g
        if w is not None:
            gw = g * (w + norm.weight_offset)
            gn = gw * n
        # A root that eps stands for does not depend on s.
        varies = rstd < 1.0 / norm.eps if bounded(norm) and norm.eps else 1.0
        ds = gw - n * measure(norm, gn) * varies
        size = np.abs(gw) + np.abs(n) * measure(norm, np.abs(gn)) * varies
        if norm.layer:
            ds -= mean(gw)
            size += mean(np.abs(gw))
        values["s"] = ds * rstd
        sizes["s"] = size * rstd
    if gs is not None:
        values["s"] = values["s"] + gs
        sizes["s"] = sizes["s"] + np.abs(gs)
    return values, sizes


def over_rows(a, axes):
    """Sum over all but the last ``axes`` axes."""
    return a.sum(tuple(range(a.ndim - axes)))
