"""Group, instance and batch norms that selftest checks, with their values in float64."""

from __future__ import annotations

import math
from dataclasses import dataclass

import mlx.core as mx

import mlx_norms

from ._row_norms import EPS, activated, exact_of

_MOMENTUM = 0.1


@dataclass(frozen=True)
class GroupOp:
    """An op on images [samples, ..., channels], as a function of the arrays of ``inputs``.

    ``sizes`` take each path of the kernels: whole vectors and parts of them, one and several chunks
    of positions, channels of one and of several threadgroups, groups for one and more SIMD-groups.
    """

    name: str
    inputs: tuple[str, ...] = ("x", "weight", "bias")
    adjoining: bool = False  # a group's channels
    activation: str | None = None
    training: bool = False
    mixed: bool = False  # whether parameters have another dtype than x

    sizes = ((2, 5, 7, 12), (1, 9, 640), (3, 130, 96), (2, 41, 50, 64), (2, 3, 3, 50))

    @property
    def label(self) -> str:
        parts = [self.name, "adjoining" * self.adjoining, self.activation or ""]
        parts += ["training" * self.training, "parameters of another dtype" * self.mixed]
        return ", ".join(part for part in parts if part)

    @staticmethod
    def where(size: tuple[int, ...]) -> str:
        return f"images of {'x'.join(map(str, size))}"

    def __call__(self, *arrays: mx.array) -> list[mx.array]:
        options = {"eps": EPS}
        if self.name == "group_norm":
            options |= {"num_groups": self._groups(arrays[0].shape[-1])}
            options |= {"pytorch_compatible": self.adjoining, "activation": self.activation}
        if self.name == "batch_norm":
            options |= {"training": self.training, "momentum": _MOMENTUM}
        outputs = getattr(mlx_norms, self.name)(
            **dict(zip(self.inputs, arrays, strict=True)), **options
        )
        return list(outputs) if self.training else [outputs]

    def values(self, name: str, dtype: mx.Dtype, size: tuple[int, ...], seed: int) -> mx.array:
        """Random ones for an input of this name."""
        if self.mixed and name != "x":
            dtype = mx.float16 if dtype == mx.float32 else mx.float32
        values = mx.random.normal(size if name == "x" else size[-1:], key=mx.random.key(seed))
        values = (values * values if name == "var" else values) + 0.5
        values = values.astype(dtype)
        mx.eval(values)
        return values

    def cotangents(self, outputs: list[mx.array], size: tuple[int, ...]) -> list[mx.array]:
        keys = mx.random.split(mx.random.key(50), len(outputs))
        values = [
            mx.random.normal(o.shape, key=key).astype(o.dtype) for o, key in zip(outputs, keys)
        ]
        mx.eval(values)
        return values

    def exact(self, *arrays: mx.array) -> list[tuple[mx.array, mx.array]]:
        """Each output in float64, and the magnitude that its rounding errors scale with."""
        named = {n: exact_of(a) for n, a in zip(self.inputs, arrays, strict=True)}
        x, weight, bias = named["x"], named.get("weight"), named.get("bias")
        if "mean" in named and not self.training:
            mean, var = named["mean"], named["var"]
            n, size = (x - mean) * mx.rsqrt(var + EPS), mx.abs(x) + mx.abs(mean)
            size = size * mx.rsqrt(var + EPS)
        else:
            n = self._normalized(x)
            size = mx.abs(n) + 1
        z = n
        if weight is not None:
            z = n * weight + bias
            size = size * mx.abs(weight) + mx.abs(bias)
        y = z
        if self.activation:
            y, of_steps = activated(self.activation, z)
            size = 2 * size + of_steps  # a slope is at most 1.13
        if not self.training:
            return [(y, size)]
        rows = tuple(range(x.ndim - 1))
        count = math.prod(x.shape[:-1])
        mean = mx.mean(x, axis=rows)
        var = mx.mean(mx.square(x - mean), axis=rows) * (count / (count - 1))
        new_mean = (1 - _MOMENTUM) * named["mean"] + _MOMENTUM * mean
        new_var = (1 - _MOMENTUM) * named["var"] + _MOMENTUM * var
        new_size = mx.abs(named["mean"]) + mx.mean(mx.abs(x), axis=rows)
        return [(y, size), (new_mean, new_size), (new_var, new_var)]

    def _normalized(self, x: mx.array) -> mx.array:
        samples = 1 if self.name == "batch_norm" else x.shape[0]
        channels = x.shape[-1]
        groups = self._groups(channels) if self.name == "group_norm" else channels
        if self.adjoining:
            split, axes = (groups, channels // groups), (1, 3)
        else:
            split, axes = (channels // groups, groups), (1, 2)
        rows = math.prod(x.shape[:-1]) // samples
        grouped = x.reshape(samples, rows, *split)
        d = grouped - mx.mean(grouped, axis=axes, keepdims=True)
        squares = mx.mean(d * d, axis=axes, keepdims=True)
        return (d * mx.rsqrt(squares + EPS)).reshape(x.shape)

    @staticmethod
    def _groups(channels: int) -> int:
        return next(groups for groups in (32, 4, 5, 1) if channels % groups == 0)


GROUP_OPS = (
    GroupOp("group_norm"),
    GroupOp("group_norm", adjoining=True, activation="silu"),
    GroupOp("group_norm", adjoining=True, activation="gelu", mixed=True),
    GroupOp("instance_norm", ("x",)),
    GroupOp("batch_norm", ("x", "weight", "bias", "mean", "var")),
    GroupOp("batch_norm", ("x", "weight", "bias", "mean", "var"), training=True),
)
