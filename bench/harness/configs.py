"""What is timed: an op at one shape and dtype, forward or backward."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from dataclasses import dataclass

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


@dataclass(frozen=True)
class Op:
    """An operation, as a function of ours and of mx.fast's, of the arrays that ``inputs`` names.

    ``flops`` are nominal operations per element, forward and backward, used to draw rooflines.
    """

    inputs: tuple[str, ...]
    ours: Callable[..., object]
    fast: Callable[..., object]
    flops: tuple[int, int]


def _fast_add_rms(x, residual, weight):
    total = x + residual
    return mx.fast.rms_norm(total, weight, EPS), total


def _fast_add_layer(x, residual, weight, bias):
    total = x + residual
    return mx.fast.layer_norm(total, weight, bias, EPS), total


def _chain_norm_add_norm(x, residual, post_weight, weight):
    total = residual + mx.fast.rms_norm(x, post_weight, EPS)
    return mx.fast.rms_norm(total, weight, EPS), total


def _fast_qk(q, k, q_weight, k_weight):
    return mx.fast.rms_norm(q, q_weight, EPS), mx.fast.rms_norm(k, k_weight, EPS)


def _chain_ada(x, scale, shift):
    return mx.fast.layer_norm(x, None, None, EPS) * (1 + scale) + shift


def _chain_add_ada(x, residual, factor, scale, shift):
    total = residual + factor * x
    return _chain_ada(total, scale, shift), total


def _chain_gated(x, gate, weight):
    return mx.fast.rms_norm(x, weight, EPS) * mlx.nn.silu(gate)


def over_axis_1(norm: Callable) -> Callable:
    """A norm of rows, such as mx.fast's, as one over axis 1."""

    def chain(x, *parameters):
        return mx.contiguous(mx.moveaxis(norm(mx.moveaxis(x, 1, -1), *parameters, EPS), -1, 1))

    return chain


def _chain_l2(x):
    v = x.astype(mx.float32)
    return (v / mx.maximum(mx.linalg.norm(v, axis=-1, keepdims=True), EPS)).astype(x.dtype)


OPS = {
    "rms": Op(
        ("x", "weight"),
        lambda x, w: mlx_norms.rms_norm(x, w, EPS),
        lambda x, w: mx.fast.rms_norm(x, w, EPS),
        (4, 10),
    ),
    "layer": Op(
        ("x", "weight", "bias"),
        lambda x, w, b: mlx_norms.layer_norm(x, w, b, EPS),
        lambda x, w, b: mx.fast.layer_norm(x, w, b, EPS),
        (7, 14),
    ),
    "add_rms": Op(
        ("x", "residual", "weight"),
        lambda x, r, w: mlx_norms.add_rms_norm(x, r, w, EPS),
        _fast_add_rms,
        (5, 11),
    ),
    "add_layer": Op(
        ("x", "residual", "weight", "bias"),
        lambda x, r, w, b: mlx_norms.add_layer_norm(x, r, w, b, EPS),
        _fast_add_layer,
        (8, 15),
    ),
    "norm_add_norm": Op(
        ("x", "residual", "post_weight", "weight"),
        lambda *arrays: mlx_norms.norm_add_norm(*arrays, EPS),
        _chain_norm_add_norm,
        (9, 20),
    ),
    "head": Op(
        ("heads", "head_weight"),
        lambda x, w: mlx_norms.rms_norm(x, w, EPS),
        lambda x, w: mx.fast.rms_norm(x, None, EPS) * w,
        (4, 10),
    ),
    "qk": Op(
        ("x", "k", "weight", "k_weight"),
        lambda q, k, *weights: mlx_norms.rms_norms([q, k], weights, EPS),
        _fast_qk,
        (4, 10),
    ),
    "ada": Op(
        ("samples", "scale", "shift"),
        lambda x, scale, shift: mlx_norms.layer_norm(x, eps=EPS, scale=scale, shift=shift),
        _chain_ada,
        (9, 16),
    ),
    "add_ada": Op(
        ("samples", "residual_samples", "factor", "scale", "shift"),
        lambda x, residual, factor, scale, shift: mlx_norms.add_layer_norm(
            x, residual, eps=EPS, factor=factor, scale=scale, shift=shift
        ),
        _chain_add_ada,
        (11, 20),
    ),
    "gated_rms": Op(
        ("x", "gate", "weight"),
        lambda x, gate, w: mlx_norms.rms_norm(x, w, EPS, gate=gate, activation="silu"),
        _chain_gated,
        (11, 27),
    ),
    "channels": Op(
        ("channels", "weight", "bias"),
        lambda x, w, b: mlx_norms.layer_norm(x, w, b, EPS, axis=1),
        over_axis_1(mx.fast.layer_norm),
        (7, 14),
    ),
    "group": Op(
        ("samples", "weight", "bias"),
        group_ops.group,
        group_ops.mlx_group,
        (7, 14),
    ),
    "group_pytorch": Op(
        ("samples", "weight", "bias"),
        functools.partial(group_ops.group, adjoining=True),
        functools.partial(group_ops.mlx_group, adjoining=True),
        (7, 14),
    ),
    "instance": Op(
        ("samples",),
        group_ops.instance,
        group_ops.mlx_instance,
        (5, 10),
    ),
    "batch_training": Op(
        ("samples", "weight", "bias"),
        functools.partial(group_ops.batch, training=True),
        functools.partial(group_ops.mlx_batch, training=True),
        (7, 14),
    ),
    "l2": Op(
        ("x",),
        lambda x: mlx_norms.l2_norm(x, EPS),
        _chain_l2,
        (4, 10),
    ),
}
LAYERS = ("group", "group_pytorch", "instance", "batch_training")
HEAD_OPS = ("head", "qk", "l2")  # of short rows
LADDER_OPS = ("layer_norm", "sgemm")
_ROWS = ("x", "heads", "k", "samples", "channels")  # inputs that are normalized
_PARAMETERS = ("weight", "bias", "scale", "shift", "factor")


@dataclass(frozen=True)
class Config:
    """An op at one shape and dtype; for queries and keys, ``rows`` counts those of the queries."""

    op: str
    dtype: str
    rows: int
    length: int
    backward: bool = False

    @property
    def adds(self) -> bool:
        return "add" in self.op

    @property
    def gates(self) -> bool:
        """Whether another array of x's shape is read, and has a gradient of its own."""
        return "gate" in OPS[self.op].inputs

    @property
    def label(self) -> str:
        """The op as it is named in bench/results."""
        return self.op.replace("_", "+")

    @property
    def name(self) -> str:
        """The label, with " vjp" if it is the gradient."""
        return f"{self.label} vjp" if self.backward else self.label

    @property
    def shape(self) -> str:
        return f"{self.rows}x{self.length}"

    @property
    def whole_vectors(self) -> bool:
        """Whether a row is a multiple of 16 bytes."""
        return self.length * DTYPES[self.dtype].size % 16 == 0

    @property
    def elements(self) -> int:
        """The number of elements that are normalized."""
        return sum(math.prod(shape) for shape in self._normalized())

    @property
    def output_bytes(self) -> int:
        """Bytes of a call's outputs that are alive while calls are evaluated together."""
        return self._tensor_bytes * self._written

    @property
    def input_bytes(self) -> int:
        """Bytes that a call reads, including parameters."""
        return self.moved - self._tensor_bytes * self._written + self.parameter_bytes

    @property
    def set_bytes(self) -> int:
        """Bytes of a set of inputs, including the outputs' cotangents for a gradient."""
        shapes = self.shapes()
        arrays = [shapes[name] for name in OPS[self.op].inputs]
        arrays += self._cotangents() if self.backward else []
        return sum(map(math.prod, arrays)) * DTYPES[self.dtype].size

    @property
    def working_bytes(self) -> int:
        """Bytes of the temporaries of a call or a copy, at most: float32 arrays of x's shape.

        On the CPU these are the intermediates of the chain of MLX ops that mx.fast runs there; so
        are those of mlx.nn's layers anywhere, of which two compute in x's dtype.
        """
        if self.op in ("group", "batch_training"):
            return self._tensor_bytes * (10 if self.backward else 4)
        if self.op in LAYERS:
            return 4 * self.elements * 6 * (1 + self.backward)
        center = self.op in ("layer", "add_layer", "ada", "add_ada", "channels")
        steps = 4 + center if mx.default_device() == mx.cpu else 2
        steps *= 1 + self._two_norms
        return 4 * self.elements * (steps + self.adds + 4 * self.gates) * (1 + self.backward)

    @property
    def moved(self) -> int:
        """Bytes of the tensors of x's shape that are read or written, each counted once.

        In the backward pass: x (or the sum), its gradient, and one cotangent per output; and the
        gate and its gradient; for two norms or a factor x and the sum, with a gradient each.
        """
        if self.backward and self._two_norms:
            return 6 * self._tensor_bytes
        if self.backward:
            return self._tensor_bytes * (3 + self.adds + 2 * (self.gates + self._factors))
        return self._tensor_bytes * (4 if self.adds else 2 + self.gates)

    @property
    def parameter_bytes(self) -> int:
        """Bytes of weights and biases, each counted once."""
        return sum(map(self._bytes_of, _PARAMETERS))

    @property
    def compulsory(self) -> int:
        """Bytes of all arrays, each counted once: any kernel must move at least these."""
        read = (
            self._bytes_of("weight") + self._bytes_of("scale") if self.backward else 0
        )  # the gradients are counted in parameter_bytes
        return self.moved + self.parameter_bytes + read

    def _bytes_of(self, kind: str) -> int:
        shapes = self.shapes()
        named = [shapes[name] for name in OPS[self.op].inputs if kind in name]
        return sum(map(math.prod, named)) * DTYPES[self.dtype].size

    @property
    def flops(self) -> int:
        return self.elements * OPS[self.op].flops[self.backward]

    @property
    def _tensor_bytes(self) -> int:
        return self.elements * DTYPES[self.dtype].size

    @property
    def _written(self) -> int:
        if self._two_norms:
            return 2
        return 1 + (self.gates + self._factors if self.backward else self.adds)

    @property
    def _factors(self) -> bool:
        return "factor" in OPS[self.op].inputs

    @property
    def _two_norms(self) -> bool:
        return self.op == "norm_add_norm"

    def _normalized(self) -> list[tuple[int, ...]]:
        shapes = self.shapes()
        return [shapes[name] for name in OPS[self.op].inputs if name in _ROWS]

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
        return [self.random(shapes[name]) for name in OPS[self.op].inputs]

    def cotangents(self) -> list[mx.array]:
        """Random arrays of the outputs' shapes."""
        return [self.random(shape) for shape in self._cotangents()]

    def _cotangents(self) -> list[tuple[int, ...]]:
        return self._normalized() * (2 if self.adds else 1)

    def random(self, shape: tuple[int, ...]) -> mx.array:
        return mx.random.normal(shape).astype(DTYPES[self.dtype])
