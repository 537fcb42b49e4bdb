"""Compares a norm's values and gradients, row by row, with the oracle.

A row counts if float32 can hold, with a factor of 4 to spare, the sums of the absolute values of
its elements and of the squares that its op computes, and its results. In other rows, where mx.fast
on the CPU has inf or NaN, a finite value must not be wrong; and they must not affect other rows.
"""

from dataclasses import replace

import mlx.core as mx
import numpy as np

from support import oracle
from support.oracle import exact, numpy32

LARGEST = oracle.FORMATS[mx.float32][2] / 4
# A step whose result is below float32's normals may lose all of it on devices that flush these.
FLUSHED = 2.0**-126


def check(norm, arrays, cotangents, values, gradients):
    """Failures as sentences."""
    truths = oracle.forward(norm, arrays)
    gradient_truths = oracle.gradients(norm, arrays, *cotangents)
    rows = Rows(norm, arrays, cotangents)
    truths[0].slack = truths[0].slack + rows.flushed
    failures = []
    fast = fast_results(norm, arrays, cotangents[0]) if not rows.fit.all() else (None, None)
    failures += check_rows(truths[0], values[0], rows.fit, fast[0], rows.subnormal)
    for truth, got in zip(truths[1:], values[1:], strict=True):
        failures += failure(truth, got)
    for (name, truth), got in zip(gradient_truths.items(), gradients, strict=True):
        if name in ("x", "residual"):
            truth.slack = truth.slack + rows.flushed_gradient
            failures += check_rows(truth, got, rows.gradient_fits, fast[1], rows.subnormal)
        elif rows.gradient_fits.all():
            truth.slack = truth.slack + rows.flushed_sums
            failures += failure(truth, got)
    return failures


class Rows:
    """Which rows count, and how much flushing may change them."""

    def __init__(self, norm, arrays, cotangents):
        s = oracle.rounded_sum(norm, arrays)
        factor = oracle.factor(arrays)
        g = exact(cotangents[0]) * factor
        length = s.shape[-1]
        centered = s - s.mean(-1, keepdims=True) if norm.layer else s
        squares = (centered * centered).sum(-1)
        n, rstd = oracle.statistics(norm, s)
        weight = arrays.get("weight")
        w = np.float64(1.0) if weight is None else exact(weight) + norm.weight_offset
        y = np.abs(n * w * factor).max(-1)
        self.fit = fits(np.abs(s).sum(-1), squares, y)
        # With no eps beside them, squares that are subnormal lose bits, or all.
        self.subnormal = (norm.eps == 0) & (squares <= 1e-30) & (np.abs(s).max(-1) > 0)
        self.fit &= ~self.subnormal
        given = [exact(cotangents[0]), None][: 1 + norm.adds]
        of_sum = oracle.gradient_values(norm, arrays, given)["residual" if norm.adds else "x"]
        gw = np.abs(g * w)
        self.gradient_fits = self.fit & fits(
            gw.sum(-1), (gw * np.abs(n)).sum(-1), of_sum[1].max(-1), (rstd**3)[..., 0]
        )
        if oracle.is_factored(norm, arrays):  # the sum's gradient is rounded to its dtype
            largest = oracle.FORMATS[norm.sum_dtype(arrays)][2]
            total = np.abs(of_sum[0]).max(-1)
            if len(cotangents) > 1:
                total = total + np.abs(exact(cotangents[1])).max(-1)
            self.gradient_fits &= total <= largest / 4
        most = np.maximum(np.abs(w).max(), 1.0) * np.maximum(np.abs(factor).max(), 1.0)
        self.flushed = 2 * FLUSHED * most
        # dx is rstd times terms of gw, n and their mean, each of which may be flushed.
        most_g = np.maximum(np.abs(g).max(), 1.0) * most
        self.flushed_gradient = 4 * FLUSHED * most_g * np.maximum(rstd, 1.0) * length
        self.flushed_sums = 2 * FLUSHED * most_g * s.size


def fits(*sums):
    return np.all([np.abs(a) <= LARGEST for a in sums], axis=0)


def failure(truth, got, note=""):
    try:
        truth.check(got, note)
    except AssertionError as error:
        return [str(error)]
    return []


def check_rows(truth, got, fit, fast, subnormal=False):
    """Checks the rows that fit, and the others where mx.fast has values that are not finite, unless
    their squares are subnormal."""
    if got.dtype != truth.dtype or got.shape != truth.value.shape:
        return failure(truth, got)
    failures = []
    if fit.any():
        failures += some(truth, got, np.broadcast_to(fit[..., None], truth.value.shape))
    if fast is not None:
        lost = ~np.isfinite(fast) & np.isfinite(numpy32(got)) & ~(fit | subnormal)[..., None]
        failures += some(truth, got, lost, "where mx.fast is not finite")
    return failures


def some(truth, got, chosen, note=""):
    """Checks the chosen elements; the failure says how many are wrong, and where the first is."""
    if not chosen.any():
        return []
    slack = np.broadcast_to(truth.slack, chosen.shape)[chosen]
    slack = np.where(np.isnan(slack), 0.0, slack)  # values that are exact or not numbers
    part = replace(truth, value=truth.value[chosen], slack=slack)
    taken = mx.array(numpy32(got)[chosen]).astype(got.dtype, stream=mx.cpu)
    places = np.argwhere(chosen)
    found = failure(part, taken, note)
    if not found:
        return []
    at = int(found[0].rsplit("first at (", 1)[1].split(",")[0])
    return [f"{found[0]}, which is at {places[at].tolist()}"]


def fast_results(norm, arrays, cotangent):
    """mx.fast on the CPU, in float32 except for the sum: the norm, and the sum's gradient."""
    with mx.stream(mx.cpu):
        s = mx.array(oracle.rounded_sum(norm, arrays).astype(np.float32))
        w, b = (arrays.get(name) for name in ("weight", "bias"))
        if w is not None:
            w = w.astype(mx.float32) + norm.weight_offset

        scale, shift = (arrays.get(name) for name in ("scale", "shift"))

        def fast(s):
            y = fast_norm(s)
            y = y if scale is None else y * (1 + scale.astype(mx.float32))
            return [y if shift is None else y + shift.astype(mx.float32)]

        def fast_norm(s):
            if norm.l2:
                squares = (s * s).sum(-1, keepdims=True)
                return s * mx.rsqrt(mx.maximum(squares, norm.eps**2))
            if norm.layer:
                return mx.fast.layer_norm(s, w, b if b is None else b.astype(mx.float32), norm.eps)
            n = mx.fast.rms_norm(s, None, norm.eps)
            return n if w is None else n * w

        (y,), (dx,) = mx.vjp(fast, [s], [cotangent.astype(mx.float32)])
        mx.eval(y, dx)
    return np.array(y), np.array(dx)
