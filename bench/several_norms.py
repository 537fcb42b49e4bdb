"""Times norms of several arrays in one launch against a call for each, on a GPU.

What models have side by side: the latents of MLA, which are parts of one projection; norms of all
heads of q and k, of different lengths; the three of Mamba's dt, B and C; l2 norms of q and k.
"apart" is this package's call for each array, "stock" MLX's. Times are from building the graph to
the result, by the host's clock: of one call in an mx.eval, and of many. Providers take turns in
each round. --device cpu tries the script with tiny shapes.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import mlx.core as mx

import mlx_norms
from harness import beside_stock
from harness.script import Script

TOKENS = (1, 16, 128, 1024, 4096)
DTYPE = mx.bfloat16
EPS = 1e-6
SIDES = ("ours", "apart", "stock")
COLUMNS = ("case", "tokens", "calls", *beside_stock.COLUMNS)


@dataclass(frozen=True)
class Case:
    """Norms side by side: of parts of one packed projection, in rows of ``lengths``."""

    name: str
    heads: tuple[int, ...]  # rows a token
    lengths: tuple[int, ...]
    l2: bool = False

    def packed(self, tokens: int) -> list[mx.array]:
        width = sum(h * n for h, n in zip(self.heads, self.lengths))
        return [mx.random.normal((1, tokens, width)).astype(DTYPE)]

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


CASES = (
    Case("latents 1536 + 512", (1, 1), (1536, 512)),
    Case("q and k 2048 + 2048", (1, 1), (2048, 2048)),
    Case("q and k 4096 + 1024", (1, 1), (4096, 1024)),
    Case("dt, B, C 256 + 16 + 16", (1, 1, 1), (256, 16, 16)),
    Case("l2 of 16 + 16 heads of 128", (16, 16), (128, 128), l2=True),
)


def main() -> None:
    script = Script(__doc__, COLUMNS, rounds=15)
    args = script.begin()
    cases = [(case, n) for case in CASES for n in ((3,) if script.tiny else TOKENS)]
    for how in ("one", "many"):
        title = f"{how} in an mx.eval: µs (quartiles)"
        report = beside_stock.Report(script, title, ("norms", "tokens"), SIDES, ("stock", "apart"))
        for case, tokens in script.tracked(cases):
            packed = case.packed(tokens)
            calls = beside_stock.calls(packed, case.functions(), packed[0].nbytes)
            seconds = beside_stock.measure(script, calls, how, args.rounds)
            labels = (case.name, str(tokens))
            report.add(labels, seconds, *labels, how, least={"stock": 1, "apart": 1})
        report.print()
