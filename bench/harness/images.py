"""Norms of images, and of sequences as images of one column, that are timed beside MLX's."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from dataclasses import dataclass

import mlx.core as mx

import mlx_norms

from . import group_ops
from .configs import DTYPES, EPS, over_axis_1

# The most threadgroup memory of an H100's or H200's threadgroup: what fits it is read once.
THREADGROUP_BYTES = 227 << 10
SECTOR = 32  # bytes: memory is not read by less
GROUP_OPS = ("group", "group_pytorch", "group_silu", "group_pytorch_silu")
HELD = (*GROUP_OPS, "instance")  # whose groups a threadgroup may hold
OPS = (*HELD, "batch_training", "batch_inference", "layer_axis1", "rms_axis1")


@dataclass(frozen=True)
class ImageConfig:
    """A norm of images [..., channels], forward or backward.

    The norms over axis 1 have the channels there. "group" is MLX's order, where a group's channels
    are ``groups`` apart, and "group_pytorch" that where they adjoin.
    """

    op: str
    dtype: str
    sizes: tuple[int, ...]  # channels last
    groups: int = group_ops.GROUPS  # of group norms
    backward: bool = False

    @property
    def shape(self) -> str:
        return "x".join(map(str, self.sizes))

    @property
    def reads(self) -> int:
        """How often x, and the cotangent, must be read.

        Once if a threadgroup can hold a group, and those beside it in the same sectors: with 20
        channels of 16 bits each, these are four groups, of which the first ends within a sector.
        """
        if self.op == "batch_training":
            return 2
        if self.op not in HELD:
            return 1
        channels, item = self.sizes[-1], DTYPES[self.dtype].size
        of_group = 1 if self.op == "instance" else channels // self.groups
        # Of a position: groups that end where a sector does.
        adjoin = "pytorch" in self.op
        held = math.lcm(SECTOR, of_group * item) if adjoin else of_group * SECTOR
        held = min(held, channels * item)
        positions = math.prod(self.sizes[1:-1])
        return 1 if positions * held <= THREADGROUP_BYTES else 2

    @property
    def moved(self) -> int:
        """Bytes of the arrays of x's shape: each written once and read as often as it must be."""
        return self._tensor_bytes * (1 + self.reads * (1 + self.backward))

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
        if self.op.endswith("axis1"):
            return _axis1(self.op)
        if self.op == "instance":
            return group_ops.instance, group_ops.mlx_instance
        if self.op in GROUP_OPS:
            options = {"adjoining": "pytorch" in self.op, "silu": self.op.endswith("silu")}
            both, options["groups"] = (group_ops.group, group_ops.mlx_group), self.groups
        else:
            both, options = (group_ops.batch, group_ops.mlx_batch), self._statistics()
        return tuple(functools.partial(function, **options) for function in both)

    def _statistics(self) -> dict[str, object]:
        """A batch norm's; none for a gradient in training, which is of y alone."""
        training = self.op == "batch_training"
        if training and self.backward:
            return {"training": True}
        found = {"mean": mx.zeros(self.sizes[-1]), "var": mx.ones(self.sizes[-1])}
        found = {name: a.astype(DTYPES[self.dtype]) for name, a in found.items()}
        mx.eval(found)
        return found | {"training": training}


def _axis1(op: str) -> tuple[Callable, Callable]:
    name = op.replace("axis1", "norm")
    ours = getattr(mlx_norms, name)
    mlx_chain = over_axis_1(getattr(mx.fast, name))
    return lambda x, *parameters: ours(x, *parameters, EPS, axis=1), mlx_chain
