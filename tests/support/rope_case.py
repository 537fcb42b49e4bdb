"""A float64 reference of a norm and a rotary embedding, with the error that arithmetic may have.

The angle is a float32: the product of a position and an inverse frequency, which are float32, too,
as MLX's ops on the CPU or its kernels on a GPU have them. What follows is exact.
"""

from dataclasses import dataclass, field

import mlx.core as mx
import numpy as np

import mlx_norms

from .inputs import normal
from .oracle import Truth, exact, round_to, smallest, unit_roundoff

U = 2.0**-24


LAID = dict(layout="BLHD", offset=0)


def norm_rope(x, weight, *args, **options):
    """The op, of tokens before heads and without an offset if no other is given."""
    return mlx_norms.norm_rope(x, weight, *args, **LAID | options)


def qk_norm_rope(*args, **options):
    return mlx_norms.qk_norm_rope(*args, **LAID | options)


@dataclass
class Case:
    """Options of norm_rope or qk_norm_rope, as they are passed.

    Attributes:
        trig: error of sines and cosines.
        gpu: whether the angles are those of MLX's kernels.
    """

    options: dict = field(default_factory=dict)
    gpu: bool = False
    trig: float = 4 * U

    def get(self, name, default):
        value = self.options.get(name)
        return default if value is None else value

    def dims(self, x):
        return self.get("dims", x.shape[-1])

    @property
    def late(self):
        offset = self.get("weight_offset", 0.0)
        return self.get("rounding", "late" if offset else "early") == "late"

    def inverse_frequencies(self, half):
        freqs = self.get("freqs", None)
        if freqs is not None:
            return np.float32(1) / np.array(freqs.astype(mx.float32))
        base = np.float32(self.get("base", 10000.0))
        i = np.arange(half, dtype=np.float32)
        if self.gpu:
            exponent = -(i / np.float32(half)) * np.log2(base)
            return np.exp2(exponent.astype(np.float64)).astype(np.float32)
        step = mx.array(np.log(base) / np.float32(half))
        exponent = mx.multiply(mx.array(-i), step, stream=mx.cpu)
        return np.array(mx.exp(exponent, stream=mx.cpu))

    def angles(self, shape, half):
        """[B, L, 1, half], and how far they may be off."""
        offset = self.get("offset", 0)
        offset = np.array(offset, dtype=np.int64).reshape(-1, 1)
        positions = (np.arange(shape[1]) + offset).astype(np.float32)
        positions = positions * np.float32(self.get("scale", 1.0))
        theta = positions[:, :, None, None] * self.inverse_frequencies(half)
        off = np.full(half, 2 * U if self.gpu else 0.0)
        if self.gpu and self.get("freqs", None) is None:
            # The exponent of two is rounded three times; base^0 is exact.
            off += 3 * U * np.log(self.get("base", 10000.0)) * np.arange(half) / half
            off[0] = 0.0
        return theta.astype(np.float64), off * np.abs(theta).astype(np.float64)

    def pairs(self, dims):
        """The first and the second elements."""
        i = np.arange(dims // 2)
        return (2 * i, 2 * i + 1) if self.get("traditional", False) else (i, i + dims // 2)

    def rotated(self, n, slack, dtype, back=False):
        """R n, or its transpose times n, and how far it may be off."""
        dims = self.dims(n)
        theta, off = self.angles(n.shape, dims // 2)
        cos, sin = np.cos(theta), np.sin(theta) * (-1 if back else 1)
        a, b = self.pairs(dims)
        y, wrong = n.copy(), slack.copy()
        ut = 0.0 if self.late else unit_roundoff(dtype)
        for to, first, second in ((a, cos, -sin), (b, cos, sin)):
            other = b if to is a else a
            x, partner = n[..., to], n[..., other]
            y[..., to] = x * first + partner * second
            terms = np.abs(x * first) + np.abs(partner * second)
            wrong[..., to] = slack[..., to] * np.abs(first) + slack[..., other] * np.abs(second)
            wrong[..., to] += terms * (3 * U + 3 * ut)
            wrong[..., to] += (np.abs(x) + np.abs(partner)) * (self.trig + off)
            wrong[..., to] += 0.0 if self.late else 2 * smallest(dtype)
        return y, wrong

    def normalized(self, x, slack, weight, factor, dtype):
        ut = 0.0 if self.late else unit_roundoff(dtype)
        tiny = 0.0 if self.late else smallest(dtype)
        eps = self.get("eps", 1e-5)
        with np.errstate(invalid="ignore", divide="ignore", over="ignore"):
            rstd = 1 / np.sqrt((x * x).mean(-1, keepdims=True) + eps)
            w = 1.0
            if weight is not None:
                w = exact(weight) + self.get("weight_offset", 0.0)
            by = np.abs(w) * abs(factor)
            y = x * rstd * w * factor
            root = np.sqrt((slack * slack).mean(-1, keepdims=True)) * rstd
            wrong = slack * rstd * by + np.abs(y) * (14 * U + 3 * ut + 2 * root)
        return y, wrong + tiny * (by + abs(factor) + 1)

    def truth(self, x, weight=None, *, rotates=True, factor=1.0):
        """Of one tensor."""
        dtype = x.dtype
        if not self.late:
            factor = float(round_to(np.float32(factor), dtype))
        y, slack = exact(x), np.zeros(x.shape)
        first = self.get("rope_first", False)
        if rotates and first:
            y, slack = self.rotated(y, slack, dtype)
        y, slack = self.normalized(y, slack, weight, factor, dtype)
        if rotates and not first:
            y, slack = self.rotated(y, slack, dtype)
        if self.get("output_layout", "BHLD") == "BHLD":
            y, slack = y.swapaxes(1, 2), slack.swapaxes(1, 2)
        return Truth(y, slack, dtype, f"{x.shape} {dtype} {self.options}")

    def call(self, x, weight=None):
        return norm_rope(x, weight, **self.options)

    def check(self, x, weight=None):
        __tracebackhide__ = True
        self.truth(x, weight).check(self.call(x, weight))

    def gradients(self, x, weight, cotangent):
        """Those of x and weight, in float64."""
        x, w, g = exact(x), exact(weight), exact(cotangent)
        none = np.zeros(x.shape)
        g = g.swapaxes(1, 2) if self.get("output_layout", "BHLD") == "BHLD" else g
        first = self.get("rope_first", False)
        of = self.rotated(x, none, mx.float32)[0] if first else x
        g = g if first else self.rotated(g, none, mx.float32, back=True)[0]
        w = w + self.get("weight_offset", 0.0)
        rstd = 1 / np.sqrt((of * of).mean(-1, keepdims=True) + self.get("eps", 1e-5))
        n = of * rstd
        wg = g * w
        dx = (wg - n * (wg * n).mean(-1, keepdims=True)) * rstd
        dw = (g * n).sum(tuple(range(3))) if weight.ndim == 1 else (g * n).sum((0, 1))
        return self.rotated(dx, none, mx.float32, back=True)[0] if first else dx, dw


def tensors(shape, dtype, *, kv_heads=1, seed=0):
    """q, k and their weights."""
    b, tokens, _, d = shape
    q = normal(shape, dtype, seed=(seed, 0))
    k = normal((b, tokens, kv_heads, d), dtype, seed=(seed, 1))
    return q, k, normal((d,), dtype, seed=(seed, 2)), normal((d,), dtype, seed=(seed, 3))
