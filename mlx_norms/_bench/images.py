"""Norms of images, and of sequences as images of one column, that are timed beside MLX's."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import mlx.core as mx
import mlx.nn

import mlx_norms

from .configs import DTYPES, EPS

# The most threadgroup memory of an H100's or H200's threadgroup: a group that fits it is read once.
THREADGROUP_BYTES = 227 << 10
GROUP_OPS = ("group", "group_pytorch", "group_silu", "group_pytorch_silu")
OPS = (*GROUP_OPS, "instance", "batch_training", "batch_inference", "layer_axis1", "rms_axis1")


@dataclass(frozen=True)
class ImageConfig:
    """A norm of images [..., channels], forward or backward.

    The norms over axis 1 have the channels there. "group" is MLX's order, where a group's channels
    are ``groups`` apart, and "group_pytorch" that where they adjoin.
    """

    op: str
    dtype: str
    sizes: tuple[int, ...]  # channels last
    groups: int = 32  # of group norms
    backward: bool = False

    @property
    def name(self) -> str:
        return f"{self.op} vjp" if self.backward else self.op

    @property
    def shape(self) -> str:
        return "x".join(map(str, self.sizes))

    @property
    def reads(self) -> int:
        """How often x, and the cotangent, must be read: once if a threadgroup can hold a group."""
        if self.op == "batch_training":
            return 2
        of_group = {
            "group": math.prod(self.sizes[1:]) // self.groups,
            "instance": math.prod(self.sizes[1:-1]),
        }.get(self.op.split("_")[0], 0)
        return 1 if of_group * DTYPES[self.dtype].size <= THREADGROUP_BYTES else 2

    @property
    def moved(self) -> int:
        """Bytes of the arrays of x's shape: each written once and read as often as it must be."""
        return self._moved(self.reads)

    @property
    def moved_twice(self) -> int:
        """The same bytes if all is read twice."""
        return self._moved(2)

    def _moved(self, reads: int) -> int:
        return self._tensor_bytes * (1 + reads * (1 + self.backward))

    @property
    def input_bytes(self) -> int:
        return self._tensor_bytes * (1 + self.backward)

    @property
    def output_bytes(self) -> int:
        return self._tensor_bytes

    @property
    def _tensor_bytes(self) -> int:
        return math.prod(self.sizes) * DTYPES[self.dtype].size

    def inputs(self) -> list[mx.array]:
        """x and, but for an instance norm, weight and, but for an rms norm, bias."""
        channels = self.sizes[-1:]
        parameters = {"instance": 0, "rms_axis1": 1}.get(self.op, 2)
        return [self._random(self._x), *(self._random(channels) for _ in range(parameters))]

    def cotangents(self) -> list[mx.array]:
        return [self._random(self._x)]

    @property
    def _x(self) -> tuple[int, ...]:
        if self.op.endswith("axis1"):
            return (self.sizes[0], self.sizes[-1], *self.sizes[1:-1])
        return self.sizes

    def _random(self, shape: tuple[int, ...]) -> mx.array:
        return mx.random.normal(shape).astype(DTYPES[self.dtype])

    def functions(self) -> tuple[Callable, Callable]:
        """Ours and MLX's, of the inputs. Both batch norms return new statistics in training."""
        if self.op in GROUP_OPS:
            return self._group()
        if self.op.startswith("batch"):
            return self._batch()
        if self.op == "instance":
            return lambda x: mlx_norms.instance_norm(x, eps=EPS), mlx.nn.InstanceNorm(1, EPS)
        return _axis1(self.op)

    def _group(self) -> tuple[Callable, Callable]:
        adjoining, activate = "pytorch" in self.op, self.op.endswith("silu")
        layer = mlx.nn.GroupNorm(self.groups, self.sizes[-1], EPS, pytorch_compatible=adjoining)

        def ours(x, weight, bias):
            options = {"activation": "silu" if activate else None, "pytorch_compatible": adjoining}
            return mlx_norms.group_norm(x, self.groups, weight, bias, EPS, **options)

        def mlx_chain(x, weight, bias):
            layer.weight, layer.bias = weight, bias
            y = layer(x)
            return mlx.nn.silu(y) if activate else y

        return ours, mlx_chain

    def _batch(self) -> tuple[Callable, Callable]:
        # The gradient of what follows a norm in training is that of y alone.
        training = self.op == "batch_training"
        tracks = not (training and self.backward)
        layer = mlx.nn.BatchNorm(self.sizes[-1], EPS, track_running_stats=tracks)
        layer.train(training)
        mean = var = None
        if tracks:
            mean, var = layer.running_mean, layer.running_var
            mean, var = (a.astype(DTYPES[self.dtype]) for a in (mean, var))
            mx.eval(mean, var)

        def ours(x, weight, bias):
            return mlx_norms.batch_norm(x, weight, bias, mean, var, EPS, training=training)

        def mlx_chain(x, weight, bias):
            layer.weight, layer.bias = weight, bias
            if tracks:
                layer.running_mean, layer.running_var = mean, var
            y = layer(x)
            return (y, layer.running_mean, layer.running_var) if training and tracks else y

        return ours, mlx_chain


def _axis1(op: str) -> tuple[Callable, Callable]:
    name = op.replace("axis1", "norm")
    ours, fast = getattr(mlx_norms, name), getattr(mx.fast, name)

    def mlx_chain(x, *parameters):
        y = fast(mx.moveaxis(x, 1, -1), *parameters, EPS)
        return mx.contiguous(mx.moveaxis(y, -1, 1))

    return lambda x, *parameters: ours(x, *parameters, EPS, axis=1), mlx_chain
