"""Norms as ours, mx.fast's and other frameworks', for timing on a GPU."""

from __future__ import annotations

import functools
import itertools
import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass

import mlx.core as mx
from cpu_vs_fast import EPS, OPS
from device_copy import PAST_CACHE

DTYPES = {"bf16": mx.bfloat16, "f16": mx.float16, "f32": mx.float32}
TORCH_DTYPES = {"bf16": "bfloat16", "f16": "float16", "f32": "float32"}
MOST_SETS = 32
TORCH_CACHE = 16 << 30


@dataclass(frozen=True)
class Cell:
    """An op at one shape and dtype."""

    op: str
    dtype: str
    rows: int
    length: int

    @property
    def adds(self) -> bool:
        return self.op.startswith("add")

    @property
    def tensor_bytes(self) -> int:
        return self.rows * self.length * DTYPES[self.dtype].size

    @property
    def output_bytes(self) -> int:
        return self.tensor_bytes * (2 if self.adds else 1)

    @property
    def moved(self) -> int:
        """Bytes of what is read and written once, without the parameters."""
        return self.tensor_bytes * (4 if self.adds else 2)

    @property
    def moved_backward(self) -> int:
        """x and dx, or the sum and its gradient, and a cotangent of each output."""
        return self.tensor_bytes * (4 if self.adds else 3)

    @property
    def sets(self) -> int:
        """Sets of inputs to take in turn, so that none is still in the cache at its next turn."""
        return max(1, min(MOST_SETS, -(-PAST_CACHE // self.output_bytes)))

    @property
    def calls(self) -> int:
        """Calls after whose outputs the cache holds none of the first one's."""
        return max(6, min(40, -(-PAST_CACHE // self.output_bytes)))

    def shapes(self, names: Iterable[str]) -> list[tuple[int, ...]]:
        row = (self.length,)
        return [row if n in ("weight", "bias") else (self.rows, self.length) for n in names]


class MLX:
    """Calls of an MLX function, built by :meth:`prepare` and run by :meth:`finish`."""

    def __init__(self, function: Callable, sets: list[list[mx.array]], cotangents=None) -> None:
        self._function = function
        self._sets = sets
        self._cotangents = cotangents

    def prepare(self, count: int) -> list:
        sets = itertools.islice(itertools.cycle(self._sets), count)
        if self._cotangents is None:
            return [self._function(*inputs) for inputs in sets]
        calls = [mx.vjp(self._function, inputs, self._cotangents) for inputs in sets]
        mx.eval([outputs for outputs, _ in calls])  # the forward is not the backward's time
        mx.synchronize()
        return [gradients for _, gradients in calls]

    def finish(self, pending: list, *, alone: bool = False) -> None:
        """Evaluate what is pending: all of it together, or one call after another."""
        for part in pending if alone else [pending]:
            mx.eval(part)


class Torch:
    """The same for a function of torch's tensors."""

    def __init__(self, function: Callable, sets: list, cotangents=None) -> None:
        import torch

        self._torch = torch
        self._function = function
        self._sets = sets
        self._cotangents = cotangents

    def prepare(self, count: int) -> list[Callable]:
        sets = list(itertools.islice(itertools.cycle(self._sets), count))
        if self._cotangents is None:
            return [functools.partial(self._function, *inputs) for inputs in sets]
        calls = []
        for inputs in sets:
            outputs = self._function(*inputs)
            outputs = outputs if isinstance(outputs, tuple) else (outputs,)
            calls.append(
                functools.partial(self._torch.autograd.grad, outputs, inputs, self._cotangents)
            )
        self._torch.cuda.synchronize()
        return calls

    def finish(self, pending: list[Callable], *, alone: bool = False) -> None:
        results = []  # kept, so that each call writes memory of its own
        with self._torch.set_grad_enabled(False):
            for call in pending:
                results.append(call())
                if alone:
                    self._torch.cuda.synchronize()
        self._torch.cuda.synchronize()


def contestants(cell: Cell, *, backward: bool = False, peers: Iterable[str] = ()) -> dict:
    """Contestants by name: ours, mx.fast, and those of ``peers`` that are there."""
    op = OPS[cell.op]
    sets = [[_random(s, cell.dtype) for s in cell.shapes(op.inputs)] for _ in range(cell.sets)]
    cotangents = None
    if backward:
        outputs = 2 if cell.adds else 1
        cotangents = [_random((cell.rows, cell.length), cell.dtype) for _ in range(outputs)]
    mx.eval(sets, cotangents or [])
    mine = {"ours": MLX(op.ours, sets, cotangents), "mx.fast": MLX(op.fast, sets, cotangents)}
    return mine | {
        peer: _torch_contestant(cell, function, backward)
        for peer in peers
        if (function := PEERS[peer]().get(cell.op))
    }


def _random(shape: tuple[int, ...], dtype: str) -> mx.array:
    return mx.random.normal(shape).astype(DTYPES[dtype])


def _torch_contestant(cell: Cell, function: Callable, backward: bool) -> Torch:
    import torch

    def random(shape):
        return torch.randn(
            shape,
            device="cuda",
            dtype=getattr(torch, TORCH_DTYPES[cell.dtype]),
            requires_grad=backward,
        )

    sets = [[random(s) for s in cell.shapes(OPS[cell.op].inputs)] for _ in range(cell.sets)]
    cotangents = None
    if backward:
        outputs = 2 if cell.adds else 1
        cotangents = [random((cell.rows, cell.length)).detach() for _ in range(outputs)]
    return Torch(function, sets, cotangents)


def clear_torch_cache() -> None:
    if "torch" in sys.modules and (cuda := sys.modules["torch"].cuda).is_initialized():
        if cuda.memory_reserved() > TORCH_CACHE:
            cuda.empty_cache()


def _torch() -> dict[str, Callable]:
    import torch.nn.functional as F

    def add_rms(x, residual, weight):
        total = x + residual
        return F.rms_norm(total, weight.shape, weight, EPS), total

    return {
        "rms": lambda x, w: F.rms_norm(x, w.shape, w, EPS),
        "layer": lambda x, w, b: F.layer_norm(x, w.shape, w, b, EPS),
        "add+rms": add_rms,
    }


def _liger() -> dict[str, Callable]:
    from liger_kernel.ops.fused_add_rms_norm import LigerFusedAddRMSNormFunction
    from liger_kernel.ops.layer_norm import LigerLayerNormFunction
    from liger_kernel.ops.rms_norm import LigerRMSNormFunction

    # An offset of 0 and the casts of a llama; not in place, as the others are not.
    options = (EPS, 0.0, "llama", False)
    return {
        "rms": lambda x, w: LigerRMSNormFunction.apply(x, w, *options),
        "layer": lambda x, w, b: LigerLayerNormFunction.apply(x, w, b, EPS),
        "add+rms": lambda x, r, w: LigerFusedAddRMSNormFunction.apply(x, r, w, *options),
    }


PEERS = {"torch": functools.cache(_torch), "liger": functools.cache(_liger)}


def importable_peers(names: Iterable[str]) -> list[str]:
    """Those of ``names`` whose packages are there."""
    found = []
    for name in names:
        try:
            PEERS[name]()
        except ImportError as error:
            print(f"no {name} here: {error}")
        else:
            found.append(name)
    return found
