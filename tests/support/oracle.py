"""Whether results are right: by the table's values in float64, with the errors that they may have.

An op is correct if |got - truth| <= k * u * S + half an ulp of the output:

* float32 arithmetic: u = 2**-24, k = 10 (rms) or 18 (layer), and 14 for the gradient of what an rms
  norm normalizes; a step that rounds early has u of its dtype, and what a subnormal loses is
  multiplied by all that multiplies the value after it;
* S is the sum of the absolute values of the terms that are summed: |y| for rms, |n w| + |w| + |b|
  for layer (n is a difference that may cancel to zero, of terms of about 1), and for a gradient
  the sum that defines it, with absolute values inside.

The values and what their errors are relative to are those of mlx_norms/_table/exact.py; here are
the roundings of gradients.
"""

from dataclasses import dataclass

import mlx.core as mx
import numpy as np

from mlx_norms._table import Op, rows
from mlx_norms._table import exact as table

from .norm_case import addends, describe

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
    """The exact values of one output, and how far arithmetic errors may take a result from them.

    ``size`` is what these errors are relative to.
    """

    value: np.ndarray
    slack: np.ndarray | float
    dtype: mx.Dtype
    config: str
    size: np.ndarray | None = None

    def check(self, got, note=""):
        __tracebackhide__ = True
        config = f"{self.config} {note}"
        assert got.dtype == self.dtype, f"{config}: dtype {got.dtype}, not {self.dtype}"
        assert got.shape == self.value.shape, f"{config}: shape {got.shape}, not {self.value.shape}"
        got = exact(got)
        with np.errstate(invalid="ignore"):
            rounded = np.abs(self.value) + self.slack  # or less
            bound = self.slack + 0.5 * ulp(rounded, self.dtype)
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


def op_of(norm, arrays):
    """The norm of these arrays as an op of the table."""
    options = dict(eps=norm.eps, rounding="early" if norm.is_early else "late", dtype=norm.dtype)
    chain = rows.add_norm if norm.adds else rows.norm
    if norm.l2:
        chain = rows.unit
        options |= dict(eps_inside=norm.eps_inside)
    else:
        options |= dict(weight_offset=norm.weight_offset)
    if is_gated(norm, arrays):
        chain = rows.gated
        options |= dict(activation=norm.activation, norm_before_gate=norm.norm_before_gate)
        options |= dict(num_groups=norm.num_groups)
    elif not norm.l2:
        options |= dict(of="layer" if norm.layer else "rms")
    if norm.adds:
        options |= dict(clamp=norm.clamp) | (
            {} if norm.factor is None else dict(factor=norm.factor)
        )
    return Op(describe(norm, arrays), "", chain, dict.fromkeys(given(arrays), ""), options)


def given(arrays):
    return {name: a for name, a in arrays.items() if a is not None}


def truths(op, arrays, dtypes):
    """Of the results of one of the table's ops."""
    with mx.stream(mx.cpu), np.errstate(invalid="ignore"):
        results = op.exact()(*given(arrays).values())
        names = ("norm", "sum")[: len(dtypes)]
        return [
            Truth(np.array(y.value), np.array(y.off), dtype, f"{op} {name}", np.array(y.size))
            for y, dtype, name in zip(results, dtypes, names, strict=True)
        ]


def forward(norm, arrays):
    """The truth of the normalized output and, for the ops that add a residual, of the sum."""
    dtypes = [norm.out_dtype(arrays), *([norm.sum_dtype(arrays)] if norm.adds else [])]
    return truths(op_of(norm, arrays), arrays, dtypes)


def is_gated(norm, arrays):
    rms = norm.op == "rms_norm"
    return rms and (arrays.get("gate") is not None or norm.activation or norm.num_groups != 1)


def is_modulated(arrays):
    return any(arrays.get(name) is not None for name in ("scale", "shift"))


def is_factored(norm, arrays):
    return norm.factor is not None or arrays.get("factor") is not None


def arithmetic(norm, arrays, of_input=False):
    """k u of float32, with 4 more for 1 + scale and its product.

    The gradient of the input is r (gw - n mean(gw n)): 2 roundings of gw, 13 of what is subtracted,
    with n twice, and 5 after that are 12.5 of S if the two are alike, even without those of sums,
    of which a row of some hundreds has about 2.
    """
    k = (18 if norm.layer else 14 if of_input else 10) + 4 * is_modulated(arrays)
    k = max(k, 16) if is_gated(norm, arrays) else k
    return k * unit_roundoff(mx.float32)


def underflow(dtype):
    """How much a cast of the normalized value to a subnormal may lose."""
    return 0.5 * smallest(dtype)


def rounded_sum(norm, arrays):
    """s as the statistics see it: sums rounded to their dtypes, clamped if requested."""
    return forward(norm, arrays)[1].value if norm.adds else exact(arrays["x"])


def statistics(norm, s):
    """The normalized values and the reciprocal roots of the rows of s."""
    of = "layer" if norm.layer else "rms"
    if norm.l2:
        of = "unit" if norm.eps_inside else "bounded unit"
    with mx.stream(mx.cpu):
        d, root = table.rows(of, mx.array(s, mx.float64), norm.eps)
        return np.array(d * root), np.array(root)


def gradient_values(norm, arrays, cotangents, sizes=None):
    """Of each array the gradient in float64, and the same sum with absolute values.

    ``sizes`` are what the cotangents' errors are relative to.
    """
    arrays, zeros = given(arrays), [np.zeros(arrays["x"].shape)] * (1 + norm.adds)
    with mx.stream(mx.cpu):
        cots, sizes = (
            [mx.array(zero if c is None else c, mx.float64) for c, zero in zip(of, zeros)]
            for of in (cotangents, sizes or [None if c is None else np.abs(c) for c in cotangents])
        )
        found = op_of(norm, arrays).gradients([*arrays.values()], cots, sizes)
        return {n: tuple(map(np.array, pair)) for n, pair in zip(arrays, found, strict=True)}


def gradients(norm, arrays, cotangent=None, sum_cotangent=None):
    """The truth of each array's gradient for these cotangents; None stands for zero."""
    cots = [None if c is None else exact(c) for c in (cotangent, sum_cotangent)[: 1 + norm.adds]]
    found = gradient_values(norm, arrays, cots)
    gated, out, truths = is_gated(norm, arrays), norm.out_dtype(arrays), {}
    for name, a in given(arrays).items():
        value, size = found[name]
        k = arithmetic(norm, arrays, of_input=name in (*addends(arrays), "factor"))
        slack = k * size + (smallest(mx.float32) if gated else 0.0)
        if name == "weight" and norm.casts_early(arrays) and not gated:
            slack = slack + 2 * unit_roundoff(out) * size
            if cots[0] is not None:
                by = np.abs(cots[0] * factor(arrays))
                slack = slack + underflow(out) * by.sum(tuple(range(by.ndim - a.ndim)))
        if name == "shift":  # MLX adds these up, one after another
            rows = arrays["x"].size // max(a.size, 1)
            slack = slack + rows * unit_roundoff(mx.float32) * size
        if is_factored(norm, arrays) and name in ("x", "factor"):
            # They are of the sum's gradient in the sum's dtype.
            dtype = norm.sum_dtype(arrays)
            lost = underflow(dtype) * multiplied(norm, arrays, name)
            slack = slack + unit_roundoff(dtype) * size + lost
        truths[name] = Truth(value, slack, a.dtype, f"{describe(norm, arrays)} gradient of {name}")
    return truths


def factor(arrays):
    scale = arrays.get("scale")
    return 1.0 if scale is None else 1.0 + exact(scale)


def multiplied(norm, arrays, name):
    """What the sum's gradient is multiplied by in that of x or of its factor, in magnitude."""
    by = arrays.get("factor")
    if name == "x":
        return np.abs(norm.factor if by is None else exact(by))
    a = np.abs(exact(arrays["x"]))
    a = a.sum(tuple(range(a.ndim - by.ndim)))
    return a.sum(tuple(i for i, n in enumerate(by.shape[:-1]) if n == 1), keepdims=True)
