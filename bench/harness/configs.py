"""What is timed: a norm at one shape and dtype, forward or backward, ours and by MLX's ops."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import mlx.core as mx
import mlx.nn

import mlx_norms

from . import group_ops
from .group_ops import EPS

HEADS = 8
SAMPLES = 4  # with a scale and a shift each
GROUPED = 4  # query heads per key head
# Row lengths at which no step of the kernels' geometry stays unseen.
LENGTHS = (16, 24, 32, 48, 64, 80, 96, 100, 101, 112, 128, 160, 192, 224, 256, 320, 384, 448, 512)
LENGTHS += (576, 640, 768, 896, 1000, 1024, 1152, 1280, 1536, 1792, 2048, 2304, 2560, 2880, 3072)
LENGTHS += (3584, 4096, 4097, 5120, 6144, 7168, 8192, 10240, 11008, 12288, 14336, 16384, 20480)
LENGTHS += (32768, 65536)
DTYPES = {"float32": mx.float32, "float16": mx.float16, "bfloat16": mx.bfloat16}


def total_and(norm: Callable, x, residual, *parameters, factor=None):
    total = residual + (x if factor is None else factor * x)
    return norm(total, *parameters, EPS), total


def norm_add_norm(x, residual, post_weight, weight):
    total = residual + mx.fast.rms_norm(x, post_weight, EPS)
    return mx.fast.rms_norm(total, weight, EPS), total


def modulated(norm: Callable, x, *parameters):
    *weights, scale, shift = parameters
    return norm(x, *(weights or (None, None)), EPS) * (1 + scale) + shift


def total_modulated(x, residual, factor, scale, shift):
    total = residual + factor * x
    return modulated(mx.fast.layer_norm, total, scale, shift), total


def over_axis_1(norm: Callable) -> Callable:
    """A norm of rows, such as mx.fast's, as one over axis 1."""

    def chain(x, *parameters):
        return mx.contiguous(mx.moveaxis(norm(mx.moveaxis(x, 1, -1), *parameters, EPS), -1, 1))

    return chain


def unit(x):
    v = x.astype(mx.float32)
    return (v / mx.maximum(mx.linalg.norm(v, axis=-1, keepdims=True), EPS)).astype(x.dtype)


RMS, LAYER = mx.fast.rms_norm, mx.fast.layer_norm
# By name: the arrays, ours and MLX's chain, as functions of them.
OPS: dict[str, tuple[str, Callable, Callable]] = {
    "rms": (
        "x weight",
        lambda x, w: mlx_norms.rms_norm(x, w, EPS),
        lambda x, w: RMS(x, w, EPS),
    ),
    "layer": (
        "x weight bias",
        lambda x, w, b: mlx_norms.layer_norm(x, w, b, EPS),
        lambda x, w, b: LAYER(x, w, b, EPS),
    ),
    "add_rms": (
        "x residual weight",
        lambda x, r, w: mlx_norms.add_rms_norm(x, r, w, EPS),
        partial(total_and, RMS),
    ),
    "add_layer": (
        "x residual weight bias",
        lambda x, r, w, b: mlx_norms.add_layer_norm(x, r, w, b, EPS),
        partial(total_and, LAYER),
    ),
    "norm_add_norm": (
        "x residual post_weight weight",
        lambda *arrays: mlx_norms.norm_add_norm(*arrays, EPS),
        norm_add_norm,
    ),
    "head": (
        "heads head_weight",
        lambda x, w: mlx_norms.rms_norm(x, w, EPS),
        lambda x, w: RMS(x, None, EPS) * w,
    ),
    "qk": (
        "x k weight k_weight",
        lambda q, k, *weights: mlx_norms.rms_norms([q, k], weights, EPS),
        lambda q, k, v, w: (RMS(q, v, EPS), RMS(k, w, EPS)),
    ),
    "ada": (
        "samples scale shift",
        lambda x, scale, shift: mlx_norms.layer_norm(x, eps=EPS, scale=scale, shift=shift),
        partial(modulated, LAYER),
    ),
    "add_ada": (
        "samples residual_samples factor scale shift",
        lambda x, residual, factor, scale, shift: mlx_norms.add_layer_norm(
            x, residual, eps=EPS, factor=factor, scale=scale, shift=shift
        ),
        total_modulated,
    ),
    "gated_rms": (
        "x gate weight",
        lambda x, gate, w: mlx_norms.rms_norm(x, w, EPS, gate=gate, activation="silu"),
        lambda x, gate, w: RMS(x, w, EPS) * mlx.nn.silu(gate),
    ),
    "channels": (
        "channels weight bias",
        lambda x, w, b: mlx_norms.layer_norm(x, w, b, EPS, axis=1),
        over_axis_1(LAYER),
    ),
    "group": ("samples weight bias", group_ops.group, group_ops.mlx_group),
    "group_pytorch": (
        "samples weight bias",
        partial(group_ops.group, adjoining=True),
        partial(group_ops.mlx_group, adjoining=True),
    ),
    "instance": ("samples", group_ops.instance, group_ops.mlx_instance),
    "batch_training": (
        "samples weight bias",
        partial(group_ops.batch, training=True),
        partial(group_ops.mlx_batch, training=True),
    ),
    "l2": ("x", lambda x: mlx_norms.l2_norm(x, EPS), unit),
}
LAYERS = ("group", "group_pytorch", "instance", "batch_training")
HEAD_OPS = ("head", "qk", "l2")  # of short rows
_ROWS = ("x", "heads", "k", "samples", "channels")  # inputs that are normalized


@dataclass(frozen=True)
class Config:
    """An op at one shape and dtype; for queries and keys, ``rows`` counts those of the queries."""

    op: str
    dtype: str
    rows: int
    length: int
    backward: bool = False

    @property
    def label(self) -> str:
        """The op as it is named in bench/results."""
        return self.op.replace("_", "+")

    @property
    def is_ragged(self) -> bool:
        """Whether a row is no multiple of 16 bytes."""
        return self.length * self._item % 16 != 0

    @property
    def _item(self) -> int:
        return DTYPES[self.dtype].size

    def inputs_of(self) -> list[str]:
        """The names of the op's arrays."""
        return OPS[self.op][0].split()

    def functions(self) -> tuple[Callable, Callable]:
        """Ours and MLX's, of the inputs."""
        return OPS[self.op][1:]

    def shapes(self) -> dict[str, tuple[int, ...]]:
        """The shapes of all ops' arrays by name, this op's among them."""
        row, heads = (self.length,), math.gcd(self.rows, HEADS)
        samples = math.gcd(self.rows, SAMPLES)
        rows = {name: self.rows for name in ("x", "residual", "gate")}
        rows |= {"k": max(1, self.rows // GROUPED)}
        return {
            **{name: (count, self.length) for name, count in rows.items()},
            **{name: row for name in ("weight", "k_weight", "post_weight", "bias")},
            "heads": (self.rows // heads, heads, self.length),
            "head_weight": (heads, self.length),
            "channels": (samples, self.length, self.rows // samples),
            "samples": (samples, self.rows // samples, self.length),
            "residual_samples": (samples, self.rows // samples, self.length),
            **{name: (samples, 1, self.length) for name in ("factor", "scale", "shift")},
        }

    def inputs(self) -> list[mx.array]:
        """Random arrays for the op's arguments."""
        shapes = self.shapes()
        return [self._random(shapes[name]) for name in self.inputs_of()]

    def cotangents(self) -> list[mx.array]:
        """Random arrays of the outputs' shapes."""
        return [self._random(shape) for shape in self._normalized() * (1 + self._adds)]

    def _random(self, shape: tuple[int, ...]) -> mx.array:
        return mx.random.normal(shape).astype(DTYPES[self.dtype])

    @property
    def _adds(self) -> bool:
        return "add" in self.op

    @property
    def _kept(self) -> int:
        """How many arrays of x's shape a gradient reads besides the cotangents, and has."""
        names = self.inputs_of()
        return 1 + any(name in names for name in ("gate", "factor", "post_weight"))

    def _normalized(self) -> list[tuple[int, ...]]:
        shapes = self.shapes()
        return [shapes[name] for name in self.inputs_of() if name in _ROWS]

    @property
    def _tensor_bytes(self) -> int:
        return self._item * sum(math.prod(shape) for shape in self._normalized())

    @property
    def moved(self) -> int:
        """Bytes of the tensors of x's shape that are read or written, each counted once.

        In the backward pass: x (or the sum), its gradient, and one cotangent per output; and the
        gate and its gradient; for two norms or a factor x and the sum, with a gradient each.
        """
        outputs = 1 + self._adds
        if self.backward:
            return self._tensor_bytes * (2 * self._kept + outputs)
        return self._tensor_bytes * (outputs + 1 + self._adds + ("gate" in self.inputs_of()))

    @property
    def input_bytes(self) -> int:
        """Bytes that a call reads of tensors of x's shape."""
        read = self._kept + 1 + self._adds if self.backward else 0
        return self._tensor_bytes * (read or 1 + self._adds + ("gate" in self.inputs_of()))

    @property
    def output_bytes(self) -> int:
        """Bytes of a call's outputs that are alive while calls are evaluated together."""
        return self._tensor_bytes * (self._kept if self.backward else 1 + self._adds)

    @property
    def alive(self) -> int:
        """Bytes of a call and of its temporaries at most, as MLX's ops need them in float32."""
        return 24 * (1 + self.backward) * (self.moved // self._item)
