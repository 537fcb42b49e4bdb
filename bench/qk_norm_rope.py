"""Times qk_norm_rope against MLX's chain, one with rms_norms, and a copy of q and k, on a GPU.

The chain is a norm, a transposition and mx.fast.rope, of q and of k, which are parts of one packed
projection. Times are from building the graph to the result, by the host's clock: of many calls in
one mx.eval, and of one call for each. The copy is of dense q and k, of as many bytes: it is the
speed at which kernels can read and write. Providers take turns in each round. --device cpu tries
the script with tiny shapes, or times those of --shapes.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass

import mlx.core as mx

import mlx_norms
from harness import beside_stock
from harness.providers import Calls
from harness.script import Script

HEADS, KV_HEADS = 32, 8
HEAD_DIMS = (64, 96, 128, 256)
TOKENS = (1, 16, 128, 512, 1024, 4096, 8192)
BATCHES = (1, 8, 32)
MOST_TOKENS = 32768  # of all sequences
DTYPE = mx.bfloat16
EPS, BASE, OFFSET = 1e-6, 1e6, 1000
OF_COPY, OF_STOCK = 0.75, 0.6  # the least share of a copy, the most of stock's time for one token
SIDES = ("ours", "rms_norms", "stock", "copy")
COLUMNS = ("batch", "tokens", "head_dim", "calls", *beside_stock.COLUMNS)


@dataclass(frozen=True)
class Shape:
    batch: int
    tokens: int
    head_dim: int

    @property
    def bytes(self) -> int:
        heads = HEADS + KV_HEADS
        return self.batch * self.tokens * heads * self.head_dim * DTYPE.size

    @property
    def label(self) -> str:
        return f"{self.batch}×{self.tokens}, {self.head_dim}"

    def inputs(self) -> list[mx.array]:
        """A packed projection of q, k and v."""
        width = (HEADS + 2 * KV_HEADS) * self.head_dim
        return [mx.random.normal((self.batch, self.tokens, width)).astype(DTYPE)]


def functions(shape: Shape) -> dict:
    """What is timed, each a function of a packed projection; the copy has dense q and k."""
    d = shape.head_dim
    weights = [mx.random.normal((d,)).astype(DTYPE) for _ in range(2)]
    offset = mx.array(OFFSET)
    mx.eval(weights, offset)
    at = dict(layout="BLHD", offset=offset)

    def parts(x):
        q, k, _ = mx.split(x, [HEADS * d, (HEADS + KV_HEADS) * d], axis=-1)
        return [a.reshape(shape.batch, shape.tokens, -1, d) for a in (q, k)]

    def rope(x):
        x = x.transpose(0, 2, 1, 3)
        return mx.fast.rope(x, d, traditional=False, base=BASE, scale=1.0, offset=offset)

    def stock(x):
        pairs = zip(parts(x), weights)
        return [rope(mx.fast.rms_norm(a, w, EPS)) for a, w in pairs]

    def with_rms_norms(x):
        return [rope(a) for a in mlx_norms.rms_norms(parts(x), weights, EPS)]

    def ours(x):
        return mlx_norms.qk_norm_rope(*parts(x), *weights, EPS, base=BASE, **at)

    return {"ours": ours, "rms_norms": with_rms_norms, "stock": stock}


def calls(shape: Shape) -> dict[str, Calls]:
    found = beside_stock.calls(shape.inputs(), functions(shape), shape.bytes)
    dense = [mx.zeros(shape.bytes // DTYPE.size, DTYPE)]
    return found | beside_stock.calls(dense, {"copy": mx.negative}, shape.bytes)


def shapes(tiny: bool, given: str) -> list[Shape]:
    if given:
        return [Shape(*map(int, each.split("x"))) for each in given.split(",")]
    if tiny:
        return [Shape(2, 3, 64)]
    grid = itertools.product(HEAD_DIMS, BATCHES, TOKENS)
    return [Shape(b, t, d) for d, b, t in grid if b * t <= MOST_TOKENS]


def main() -> None:
    script = Script(__doc__, COLUMNS, rounds=9)
    of = "batch x tokens x head_dim, as 1x512x128,1x512x64 (default: the grid)"
    script.parser.add_argument("--shapes", default="", metavar="LIST", help=of)
    args = script.begin()
    for how in ("one", "many"):
        title = f"{how} in an mx.eval: µs (quartiles)"
        over = ("stock", "rms_norms", "copy")
        report = beside_stock.Report(script, title, ("tokens, head_dim",), SIDES, over)
        for shape in script.tracked(shapes(script.tiny, args.shapes)):
            seconds = beside_stock.measure(script, calls(shape), how, args.rounds)
            least = {"stock": 1 / OF_STOCK if shape.tokens == 1 and how == "one" else 1.0}
            if how == "many" and shape.tokens >= 4096:
                least["copy"] = OF_COPY
            about = (shape.batch, shape.tokens, shape.head_dim, how)
            report.add((shape.label,), seconds, *about, least=least)
        report.print()
