"""qk_norm_rope against MLX's chain, one with rms_norms, and a copy of q and k, on a GPU.

The chain is a norm, a transposition and mx.fast.rope, of q and of k, which are parts of one packed
projection. The copy is of dense q and k, of as many bytes: it is the speed at which kernels can
read and write. --only "1 512 128" is of a batch of 1, 512 tokens and heads of 128.
"""

from __future__ import annotations

import argparse
import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import mlx.core as mx

import mlx_norms
from harness import providers
from harness.suite import Case, Suite

HEADS, KV_HEADS = 32, 8
HEAD_DIMS = (64, 96, 128, 256)
TOKENS = (1, 16, 128, 512, 1024, 4096, 8192)
BATCHES = (1, 8, 32)
MOST_TOKENS = 32768  # of all sequences
DTYPE = mx.bfloat16
EPS, BASE, OFFSET = 1e-6, 1e6, 1000
OF_COPY, OF_STOCK = 0.75, 0.6  # the least share of a copy, the most of stock's time for one token


@dataclass(frozen=True)
class Shape:
    batch: int
    tokens: int
    head_dim: int

    @property
    def bytes(self) -> int:
        return self.batch * self.tokens * (HEADS + KV_HEADS) * self.head_dim * DTYPE.size

    def inputs(self) -> list[mx.array]:
        """A packed projection of q, k and v."""
        width = (HEADS + 2 * KV_HEADS) * self.head_dim
        return [mx.random.normal((self.batch, self.tokens, width)).astype(DTYPE)]

    def functions(self) -> dict[str, Callable]:
        """What is timed, each a function of a packed projection."""
        d = self.head_dim
        weights = [mx.random.normal((d,)).astype(DTYPE) for _ in range(2)]
        offset = mx.array(OFFSET)
        mx.eval(weights, offset)
        at = dict(layout="BLHD", offset=offset)

        def parts(x):
            q, k, _ = mx.split(x, [HEADS * d, (HEADS + KV_HEADS) * d], axis=-1)
            return [a.reshape(self.batch, self.tokens, -1, d) for a in (q, k)]

        def rope(x):
            x = x.transpose(0, 2, 1, 3)
            return mx.fast.rope(x, d, traditional=False, base=BASE, scale=1.0, offset=offset)

        return {
            "ours": lambda x: mlx_norms.qk_norm_rope(*parts(x), *weights, EPS, base=BASE, **at),
            "rms_norms": lambda x: [rope(a) for a in mlx_norms.rms_norms(parts(x), weights, EPS)],
            "stock": lambda x: [
                rope(mx.fast.rms_norm(a, w, EPS)) for a, w in zip(parts(x), weights)
            ],
        }


def case(shape: Shape) -> Case:
    def sides() -> dict:
        providers.make_room()
        sizes = dict(of_bytes=shape.bytes, output_bytes=shape.bytes)
        found = providers.in_turn(shape.functions(), shape.inputs(), **sizes)
        dense = [mx.zeros(shape.bytes // DTYPE.size, DTYPE)]
        return found | providers.in_turn({"copy": mx.negative}, dense, **sizes)

    least = {"stock": 1 / OF_STOCK if shape.tokens == 1 else 1.0}
    if shape.tokens >= 4096:
        least["copy"] = OF_COPY
    labels = dict(batch=shape.batch, tokens=shape.tokens, head_dim=shape.head_dim)
    return Case(labels, sides, 2 * shape.bytes, least=least)


def cases(args: argparse.Namespace) -> Iterator[Case]:
    grid = itertools.product(HEAD_DIMS, BATCHES, TOKENS)
    shapes = [Shape(b, t, d) for d, b, t in grid if b * t <= MOST_TOKENS]
    yield from map(case, [Shape(2, 3, 64)] if args.tiny else shapes)


SUITE = Suite(__doc__, ("batch", "tokens", "head_dim"), cases, ("one", "many"))
