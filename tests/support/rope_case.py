"""A float64 reference of a norm and a rotary embedding, with the error that arithmetic may have.

The angle is a float32: the product of a position and an inverse frequency, which are float32, too,
as MLX's ops on the CPU or its kernels on a GPU have them. What follows is exact.
"""

from dataclasses import dataclass, field

import mlx.core as mx
import numpy as np

import mlx_norms
from mlx_norms._table import Op
from mlx_norms._table.exact import U

from . import oracle
from .inputs import normal

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

    def op_of(self, shape, arrays, rotates=True, factor=1.0):
        """As an op of the table, whose rotation has these angles."""
        first, laid = self.get("rope_first", False), self.get("output_layout", "BHLD")
        traditional = self.get("traditional", False)
        with mx.stream(mx.cpu):
            angles = self.angles(shape, self.dims(arrays[0]) // 2)
            theta, off = (mx.array(a, mx.float64) for a in angles)

        def rotated(m, x):
            return m.rotated(x, theta, off, traditional=traditional, trig=self.trig)

        def chain(m, x, weight=None, *, eps, weight_offset=0.0):
            w = m.shifted(weight, weight_offset) if weight_offset else weight
            y = m.rms(rotated(m, x) if rotates and first else x, w, eps=eps)
            y = y if factor == 1.0 else y * factor
            y = rotated(m, y) if rotates and not first else y
            return m.moved(lambda a: a.swapaxes(1, 2), y) if laid == "BHLD" else y

        options = dict(eps=self.get("eps", 1e-5), rounding="late" if self.late else "early")
        options |= dict(weight_offset=self.get("weight_offset", 0.0))
        axes = dict.fromkeys(("x", "weight")[: len(arrays)], "")
        return Op(f"{shape} {arrays[0].dtype} {self.options}", "", chain, axes, options)

    def truth(self, x, weight=None, *, rotates=True, factor=1.0):
        """Of one tensor."""
        arrays = [x] if weight is None else [x, weight]
        op = self.op_of(x.shape, arrays, rotates, factor)
        return oracle.truths(op, dict(enumerate(arrays)), [x.dtype])[0]

    def call(self, x, weight=None):
        return norm_rope(x, weight, **self.options)

    def check(self, x, weight=None):
        __tracebackhide__ = True
        self.truth(x, weight).check(self.call(x, weight))

    def gradients(self, x, weight, cotangent):
        """Those of x and weight, in float64."""
        op = self.op_of(x.shape, [x, weight])
        with mx.stream(mx.cpu):
            return [np.array(value) for value, _ in op.gradients([x, weight], [cotangent])]


def tensors(shape, dtype, *, kv_heads=1, seed=0):
    """q, k and their weights."""
    b, tokens, _, d = shape
    q = normal(shape, dtype, seed=(seed, 0))
    k = normal((b, tokens, kv_heads, d), dtype, seed=(seed, 1))
    return q, k, normal((d,), dtype, seed=(seed, 2)), normal((d,), dtype, seed=(seed, 3))
