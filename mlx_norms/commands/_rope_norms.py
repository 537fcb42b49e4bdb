"""The rotary embeddings after norms that selftest checks, with their values in float64."""

from __future__ import annotations

from dataclasses import dataclass

import mlx.core as mx

import mlx_norms

from ._row_norms import EPS, exact_of

_HEADS, _KV_HEADS, _TOKENS = 4, 2, 7
_OFFSET, _BASE = 5, 100.0


@dataclass(frozen=True)
class RopeOp:
    """norm_rope, or qk_norm_rope with v, as a function of the arrays of ``inputs``.

    ``sizes`` are head_dims, and how much of them is rotated: elements of a pair are in one vector,
    in two of a thread, in two threads, or read one by one.
    """

    inputs: tuple[str, ...] = ("x", "weight")
    traditional: bool = False
    rope_first: bool = False
    late: bool = False

    sizes = ((64, 64), (128, 128), (96, 96), (80, 32), (34, 34), (33, 18), (256, 256))

    @property
    def name(self) -> str:
        return "norm_rope" if len(self.inputs) == 2 else "qk_norm_rope"

    @property
    def label(self) -> str:
        parts = [self.name, "traditional" * self.traditional, "rope first" * self.rope_first]
        return ", ".join(part for part in [*parts, "late" * self.late] if part)

    @staticmethod
    def where(size: tuple[int, int]) -> str:
        return f"heads of {size[0]}, {size[1]} rotated"

    @staticmethod
    def _dims(d: int) -> int:
        return next(dims for size, dims in RopeOp.sizes if size == d)

    def __call__(self, *arrays: mx.array) -> list[mx.array]:
        options = dict(eps=EPS, dims=self._dims(arrays[0].shape[-1]), base=_BASE, offset=_OFFSET)
        options |= dict(traditional=self.traditional, rope_first=self.rope_first)
        options |= dict(rounding="late" if self.late else "early")
        if self.name == "norm_rope":
            return [mlx_norms.norm_rope(*arrays, **options)]
        *arrays, v = arrays
        return list(mlx_norms.qk_norm_rope(*arrays, v=v, **options))

    def exact(self, *arrays: mx.array) -> list[tuple[mx.array, mx.array]]:
        """Each output in float64, and the magnitude that its rounding errors scale with."""
        if self.name == "norm_rope":
            return [self._result(*arrays)]
        q, k, q_weight, k_weight, v = arrays
        y = _normalized(exact_of(v)).swapaxes(1, 2)
        return [self._result(q, q_weight), self._result(k, k_weight), (y, mx.abs(y))]

    def _result(self, x: mx.array, weight: mx.array) -> tuple[mx.array, mx.array]:
        x, weight = exact_of(x), exact_of(weight)
        y = self._rotated(x) if self.rope_first else _normalized(x) * weight
        y = _normalized(y) * weight if self.rope_first else self._rotated(y)
        # Both elements of a pair round, and each step of a rotation.
        size = mx.sqrt(self._pairs(_normalized(x) ** 2)) * mx.abs(weight).max()
        return y.swapaxes(1, 2), 4 * (size.swapaxes(1, 2) + mx.abs(y).swapaxes(1, 2))

    def _halves(self, x: mx.array) -> tuple[mx.array, mx.array, mx.array]:
        dims = self._dims(x.shape[-1])
        if self.traditional:
            return x[..., :dims:2], x[..., 1:dims:2], x[..., dims:]
        return x[..., : dims // 2], x[..., dims // 2 : dims], x[..., dims:]

    def _whole(self, a: mx.array, b: mx.array, tail: mx.array) -> mx.array:
        if self.traditional:
            both = mx.flatten(mx.stack([a, b], axis=-1), -2, -1)
            return mx.concatenate([both, tail], axis=-1)
        return mx.concatenate([a, b, tail], axis=-1)

    def _pairs(self, x: mx.array) -> mx.array:
        """The sum of each pair, for both of its elements."""
        a, b, tail = self._halves(x)
        return self._whole(a + b, a + b, tail)

    def _rotated(self, x: mx.array) -> mx.array:
        a, b, tail = self._halves(x)
        half = a.shape[-1]
        positions = (mx.arange(_TOKENS) + _OFFSET).astype(mx.float64)[:, None, None]
        exponents = mx.arange(half).astype(mx.float64) / half
        theta = positions * mx.array(_BASE, mx.float64) ** -exponents
        cos, sin = mx.cos(theta), mx.sin(theta)
        return self._whole(a * cos - b * sin, a * sin + b * cos, tail)

    def values(self, name: str, dtype: mx.Dtype, size: tuple[int, int], seed: int) -> mx.array:
        """Random ones for an input of this name."""
        shape = (2, _TOKENS, _KV_HEADS if name in ("k", "v") else _HEADS, size[0])
        shape = size[:1] if name.endswith("weight") else shape
        values = (mx.random.normal(shape, key=mx.random.key(seed)) + 0.5).astype(dtype)
        mx.eval(values)
        return values

    def cotangents(self, outputs: list[mx.array], size: tuple[int, int]) -> list[mx.array]:
        return [
            mx.random.normal(o.shape, key=mx.random.key(50 + i)).astype(o.dtype)
            for i, o in enumerate(outputs)
        ]


def _normalized(x: mx.array) -> mx.array:
    return x * mx.rsqrt(mx.mean(x * x, axis=-1, keepdims=True) + EPS)


ROPE_OPS = (
    RopeOp(),
    RopeOp(traditional=True),
    RopeOp(rope_first=True),
    RopeOp(("q", "k", "q_weight", "k_weight", "v")),
    RopeOp(("q", "k", "q_weight", "k_weight", "v"), traditional=True, late=True),
)
