"""norm_add_norm: its arguments, the chain that it stands for, and the truth in float64."""

import itertools

import mlx.core as mx
import numpy as np

import mlx_norms
from mlx_norms._table import Op
from mlx_norms._table.exact import result_type
from mlx_norms._table.rows import norm_add_norm

from . import oracle
from .bits import assert_same_bits
from .inputs import normal
from .norm_case import Norm
from .oracle import Truth, exact, unit_roundoff

NAMES = ("x", "residual", "post_weight", "weight")


def arrays_of(shape, dtype, *, others=None, without=(), seed=0, std=1.0):
    """Arrays by name; ``others`` is a dict of dtypes of some of them."""
    arrays = {}
    for i, name in enumerate(NAMES):
        if name not in without:
            of = shape[-1:] if "weight" in name else shape
            to = (others or {}).get(name, dtype)
            arrays[name] = normal(of, to, seed=(seed, i), std=1.0 if "weight" in name else std)
    return arrays


def dtypes_of(arrays, dtype=None):
    """Of the normalized output and of the sum."""
    total = result_type(arrays["x"].dtype, arrays["residual"].dtype)
    return dtype or arrays["x"].dtype, total


def cotangents_of(arrays, dtype=None):
    shape = arrays["x"].shape
    return [normal(shape, to, seed=(9, i)) for i, to in enumerate(dtypes_of(arrays, dtype))]


def call(arrays, **options):
    return list(mlx_norms.norm_add_norm(**arrays, **options))


def chain(arrays, *, clamp=False, rounding=None, dtype=None, **options):
    """The same as our norms and MLX's addition, each rounding in its turn."""
    options |= {"rounding": "early"}
    factor = arrays.get("factor", options.pop("factor", None))
    n = mlx_norms.rms_norm(arrays["x"], arrays.get("post_weight"), **options)
    h = arrays["residual"] + (n if factor is None else n * factor)
    h = h.astype(dtypes_of(arrays)[1])
    if clamp and h.dtype == mx.float16:
        h = mx.where(mx.isnan(h), h, mx.clip(h, -oracle.F16_MAX, oracle.F16_MAX).astype(h.dtype))
    dtype = dtypes_of(arrays, dtype)[0]
    return [mlx_norms.rms_norm(h, arrays.get("weight"), dtype=dtype, **options), h]


def assert_is_the_chain(arrays, **options):
    __tracebackhide__ = True
    for got, want in zip(call(arrays, **options), chain(arrays, **options), strict=True):
        assert_same_bits(got, want, f"{describe(arrays)} {options}")


def describe(arrays):
    return ", ".join(f"{n} {a.dtype}{list(a.shape)}" for n, a in arrays.items())


class Case:
    """A call and the truth of its results, with the bounds of two norms one after another."""

    def __init__(
        self,
        arrays,
        *,
        eps=1e-5,
        weight_offset=0.0,
        clamp=False,
        rounding=None,
        factor=None,
        dtype=None,
    ):
        self.arrays, self.number = arrays, factor
        self.options = dict(eps=eps, weight_offset=weight_offset, rounding=rounding)
        self.dtype, self.clamp = dtype, clamp
        self.norm = Norm("rms_norm", **self.options)
        self.out, self.total = dtypes_of(arrays, dtype)

    def __str__(self):
        return f"norm_add_norm({describe(self.arrays)}, {self.options}, {self.clamp=})"

    def function(self, *arrays):
        named = dict(zip(self.arrays, arrays, strict=True))
        options = {} if self.number is None else dict(factor=self.number)
        return call(named, **self.options, **options, clamp=self.clamp, dtype=self.dtype)

    @property
    def factor(self):
        """In float64; a number as x's dtype has it."""
        factor = self.arrays.get("factor")
        if factor is None:
            factor = mx.array(1.0 if self.number is None else self.number, self.arrays["x"].dtype)
        return exact(factor)

    def check(self, cots=None):
        """Checks outputs and all gradients."""
        __tracebackhide__ = True
        cots = cots or cotangents_of(self.arrays, self.dtype)
        outputs, gradients = mx.vjp(self.function, list(self.arrays.values()), cots)
        self.check_outputs(*outputs)
        for truth, got in zip(self.gradients(outputs[1], *cots), gradients, strict=True):
            truth.check(got)

    def check_outputs(self, y, h):
        __tracebackhide__ = True
        config = f"norm_add_norm({describe(self.arrays)}, {self.options})"
        options = self.options | dict(clamp=self.clamp)
        options |= {} if self.number is None else dict(factor=self.factor.item())
        op = Op(config, "", norm_add_norm, dict.fromkeys(self.arrays, ""), options)
        _, s = oracle.truths(op, self.arrays, (self.out, self.total))
        s.check(h)
        second = Norm("rms_norm", dtype=self.out, **self.options)
        oracle.forward(second, {"x": h, "weight": self.arrays.get("weight")})[0].check(y)

    def gradients(self, h, cotangent, sum_cotangent):
        """In the order of the arrays, given the sum that was rounded."""
        u = 8 * unit_roundoff(mx.float32)
        gs, factor = exact(sum_cotangent), self.factor
        second = {"x": h, "weight": self.arrays.get("weight")}
        of_sum = oracle.gradient_values(self.norm, second, [exact(cotangent)])
        dh, size = of_sum["x"]
        dh, size = dh + gs, size + np.abs(gs)
        if self.clamp and self.total == mx.float16:
            dh = np.where(np.abs(exact(h)) == oracle.F16_MAX, 0.0, dh)
        # The sum's gradient has the sum's dtype or, as the cotangent of x's norm, that of x.
        narrow = [self.total] + [self.arrays["x"].dtype] * self.norm.is_early
        rounded = u + max(map(unit_roundoff, narrow))
        least = max(map(oracle.underflow, narrow))
        lost = np.full(self.arrays["x"].shape, least)
        if not np.all(factor == 1):  # the product is rounded, too
            rounded, lost = 2 * rounded, lost * (1 + np.abs(factor))
        first = {"x": self.arrays["x"], "weight": self.arrays.get("post_weight")}
        of_x = oracle.gradient_values(self.norm, first, [dh * factor], [size * np.abs(factor)])
        lost = oracle.gradient_values(self.norm, first, [lost])
        values = {
            "residual": (dh, u * size + (rounded - u) * np.abs(dh) + least),
            "weight": (of_sum["weight"][0], u * of_sum["weight"][1]) if "weight" in of_sum else 0,
        }
        for name, of in (("x", "x"), ("post_weight", "weight")):
            if of in of_x:
                values[name] = of_x[of][0], (u + rounded) * of_x[of][1] + lost[of][1]
        early = 2 * unit_roundoff(min(self.total, self.out, key=lambda d: d.size))
        if "factor" in self.arrays:
            (n,) = oracle.forward(self.norm, first)
            off = rounded + early * self.norm.is_early
            values["factor"] = [
                sum_to(a, self.arrays["factor"].shape)
                for a in (
                    dh * n.value,
                    (off * size + least) * np.abs(n.value) + np.abs(dh) * (n.slack + least),
                )
            ]
        for name, a in self.arrays.items():
            value, slack = values[name]
            if "weight" in name and self.norm.is_early:
                slack = slack + early * (of_x if "post" in name else of_sum)["weight"][1]
            yield Truth(value, slack, a.dtype, f"{describe(self.arrays)} gradient of {name}")


def sum_to(a, shape):
    """The sum over the axes along which an array of this shape broadcasts."""
    full = (1,) * (a.ndim - len(shape)) + tuple(shape)
    axes = tuple(i for i, n in enumerate(full) if n == 1 and a.shape[i] != 1)
    return a.sum(axis=axes).reshape(shape)


def all_mixes(dtypes):
    """Dtypes of x, residual and both weights."""
    for x, residual, w in itertools.product(dtypes, repeat=3):
        yield x, dict(residual=residual, post_weight=w, weight=x)
