"""What a small call costs the host: the calling thread's CPU time to build and evaluate it.

Many independent calls are built and evaluated together, so the kernels run meanwhile. Each call is
compared with what does the same in MLX, one right after the other. "launches" says whether MLX
takes more of them: against one launch a call of ours should cost no more, against several it saves
some.
"""

from __future__ import annotations

import argparse
import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import mlx.core as mx
import mlx.nn as nn

import mlx_norms
from harness.providers import Calls
from harness.suite import Case, Suite

CALLS = 200  # a sample
EPS = 1e-5
ALIKE, FEWER = 0.98, 1.0  # the least of stock over ours, against one launch and against several
QUANTIZED = dict(transpose=True, group_size=64, bits=4)


@dataclass(frozen=True)
class Row:
    """Calls of ours and of MLX that do the same; each takes a number, which chooses its input."""

    name: str
    ours: Callable[[int], object]
    stock: Callable[[int], object]
    alone: bool = False  # whether MLX takes one launch, too
    context: Callable = contextlib.nullcontext  # of ours


def several(*shape: int) -> Callable[[int], mx.array]:
    """Arrays of this shape, by turns."""
    arrays = [mx.random.normal(shape).astype(mx.bfloat16) for _ in range(8)]
    mx.eval(arrays)
    return lambda i: arrays[i % len(arrays)]


def rows() -> list[Row]:
    x, r, frames, z = several(1, 4096), several(1, 4096), several(1, 4, 4096), several(1, 4, 4096)
    q, k, image = several(1, 1, 32, 128), several(1, 1, 8, 128), several(1, 16, 16, 320)
    w, b, scale, shift = (several(*s)(0) for s in ((4096,), (4096,), (1, 1, 4096), (1, 1, 4096)))
    of_head, matrix = several(128)(0), several(512, 4096)(0)
    group = nn.GroupNorm(32, 320, pytorch_compatible=True)
    group.set_dtype(mx.bfloat16)
    parts = mx.quantize(matrix, group_size=64, bits=4)
    mx.eval(parts, group.parameters())
    fast, ours = mx.fast, mlx_norms

    def added(i):
        h = x(i) + r(i)
        return fast.rms_norm(h, w, EPS), h

    def stock_norm(i):
        return fast.rms_norm(x(i), w, EPS)

    def stock_product(i):
        return mx.quantized_matmul(x(i), *parts, **QUANTIZED)

    return [
        Row("rms_norm", lambda i: ours.rms_norm(x(i), w, EPS), stock_norm, alone=True),
        Row(
            "layer_norm",
            lambda i: ours.layer_norm(x(i), w, b, EPS),
            lambda i: fast.layer_norm(x(i), w, b, EPS),
            alone=True,
        ),
        Row("rms_norm, patched", stock_norm, stock_norm, True, mlx_norms.patched),
        Row(
            "quantized_matmul, 1 row",
            lambda i: ours.quantized_matmul(x(i), *parts, **QUANTIZED),
            stock_product,
            alone=True,
        ),
        Row("add_rms_norm", lambda i: ours.add_rms_norm(x(i), r(i), w, EPS), added),
        Row("add_rms_norm, patched", added, added, context=mlx_norms.patched),
        Row(
            "layer_norm, scale and shift",
            lambda i: ours.layer_norm(frames(i), None, None, EPS, scale=scale, shift=shift),
            lambda i: fast.layer_norm(frames(i), None, None, EPS) * (1 + scale) + shift,
        ),
        Row(
            "rms_norm, gate",
            lambda i: ours.rms_norm(frames(i), w, EPS, gate=z(i), activation="silu"),
            lambda i: fast.rms_norm(frames(i), w, EPS) * nn.silu(z(i)),
        ),
        Row(
            "rms_norms of queries and keys",
            lambda i: ours.rms_norms([q(i), k(i)], [of_head, of_head], EPS),
            lambda i: [fast.rms_norm(a, of_head, EPS) for a in (q(i), k(i))],
        ),
        Row(
            "group_norm",
            lambda i: ours.group_norm(
                image(i), 32, group.weight, group.bias, EPS, pytorch_compatible=True
            ),
            lambda i: group(image(i)),
        ),
        Row(
            "rms_norm_linear, 4 bits",
            lambda i: ours.rms_norm_linear(x(i), w, [parts], EPS),
            lambda i: mx.quantized_matmul(stock_norm(i), *parts, **QUANTIZED),
        ),
        Row(
            "rms_norm_linear",
            lambda i: ours.rms_norm_linear(x(i), w, matrix, EPS),
            lambda i: stock_norm(i) @ matrix.T,
        ),
    ]


def cases(args: argparse.Namespace) -> Iterator[Case]:
    for row in rows():
        numbered = [[i] for i in range(8)]
        sides = {"ours": Calls(row.ours, numbered, context=row.context)}
        sides["stock"] = Calls(row.stock, numbered)
        labels = dict(call=row.name, launches="one" if row.alone else "more")
        least = dict(stock=ALIKE if row.alone else FEWER)
        yield Case(labels, lambda sides=sides: sides, least=least, count=CALLS)


SUITE = Suite(__doc__, ("call", "launches"), cases, ("thread",), rounds=201)
