"""Norms of several arrays in one launch against a call for each, on a GPU.

What models have side by side: the latents of MLA, which are parts of one projection; norms of all
heads of q and k, of different lengths; the three of Mamba's dt, B and C; l2 norms of q and k.
"apart" is this package's call for each array, "stock" MLX's.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import mlx.core as mx

import mlx_norms
from harness import providers
from harness.suite import Case, Suite

TOKENS = (1, 16, 128, 1024, 4096)
DTYPE = mx.bfloat16
EPS = 1e-6


@dataclass(frozen=True)
class Norms:
    """Norms side by side: of parts of one packed projection, in rows of ``lengths``."""

    name: str
    heads: tuple[int, ...]  # rows a token
    lengths: tuple[int, ...]
    l2: bool = False

    def parts(self, x: mx.array) -> list[mx.array]:
        arrays, start = [], 0
        for heads, length in zip(self.heads, self.lengths):
            part = x[..., start : start + heads * length]
            arrays.append(part.reshape(1, -1, heads, length) if heads > 1 else part)
            start += heads * length
        return arrays

    def functions(self) -> dict[str, Callable]:
        if self.l2:
            return {
                "ours": lambda x: mlx_norms.l2_norms(self.parts(x), eps=EPS),
                "apart": lambda x: [mlx_norms.l2_norm(a, eps=EPS) for a in self.parts(x)],
                "stock": lambda x: [
                    a * mx.rsqrt(mx.sum(a * a, axis=-1, keepdims=True) + EPS) for a in self.parts(x)
                ],
            }
        weights = [1 + mx.random.normal((n,)).astype(DTYPE) / 8 for n in self.lengths]
        mx.eval(weights)

        def each(norm: Callable) -> Callable:
            return lambda x: [norm(a, w, EPS) for a, w in zip(self.parts(x), weights)]

        return {
            "ours": lambda x: mlx_norms.rms_norms(self.parts(x), weights, EPS),
            "apart": each(mlx_norms.rms_norm),
            "stock": each(mx.fast.rms_norm),
        }

    def case(self, tokens: int) -> Case:
        def sides() -> dict:
            width = sum(h * n for h, n in zip(self.heads, self.lengths))
            packed = [mx.random.normal((1, tokens, width)).astype(DTYPE)]
            sizes = dict(of_bytes=packed[0].nbytes, output_bytes=packed[0].nbytes)
            return providers.in_turn(self.functions(), packed, **sizes)

        return Case(dict(case=self.name, tokens=tokens), sides, least=dict(stock=1, apart=1))


NORMS = (
    Norms("latents 1536 + 512", (1, 1), (1536, 512)),
    Norms("q and k 2048 + 2048", (1, 1), (2048, 2048)),
    Norms("q and k 4096 + 1024", (1, 1), (4096, 1024)),
    Norms("dt, B, C 256 + 16 + 16", (1, 1, 1), (256, 16, 16)),
    Norms("l2 of 16 + 16 heads of 128", (16, 16), (128, 128), l2=True),
)


def cases(args: argparse.Namespace) -> Iterator[Case]:
    for norms in NORMS:
        yield from map(norms.case, (3,) if args.tiny else TOKENS)


SUITE = Suite(__doc__, ("case", "tokens"), cases, ("one", "many"))
