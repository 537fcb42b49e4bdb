"""Times qk_norm_rope against MLX's chain, one with rms_norms, and a copy of q and k, on a GPU.

The chain is a norm, a transposition and mx.fast.rope, of q and of k, which are parts of one packed
projection. Times are from building the graph to the result, by the host's clock: of many calls in
one mx.eval, and of one call for each. The copy is of dense q and k, of as many bytes: it is the
speed at which kernels can read and write. Providers take turns in each round. --device cpu tries
the script with tiny shapes, or times those of --shapes.
"""

from __future__ import annotations

import itertools
import sys
from dataclasses import dataclass

import mlx.core as mx

import mlx_norms
from harness import beside_stock
from harness.providers import Calls, copies, make_room, sets_needed
from harness.script import Script
from harness.tables import red_if, table
from mlx_norms._measure import timing

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


def providers(shape: Shape) -> dict[str, Calls]:
    count = sets_needed(shape.bytes)
    packed = copies(shape.inputs(), count)
    found = {
        name: Calls(function, packed, output_bytes=shape.bytes)
        for name, function in functions(shape).items()
    }
    dense = copies([mx.zeros(shape.bytes // DTYPE.size, DTYPE)], count)
    found["copy"] = Calls(mx.negative, dense, output_bytes=shape.bytes)
    return found


def measure(script: Script, shape: Shape, how: str, rounds: int) -> dict[str, timing.Samples]:
    make_room()
    seconds = beside_stock.measure(script, providers(shape), how, rounds)
    beside_stock.write(script, seconds, shape.batch, shape.tokens, shape.head_dim, how)
    return seconds


def shapes(tiny: bool, given: str) -> list[Shape]:
    if given:
        return [Shape(*map(int, each.split("x"))) for each in given.split(",")]
    if tiny:
        return [Shape(2, 3, 64)]
    grid = itertools.product(HEAD_DIMS, BATCHES, TOKENS)
    return [Shape(b, t, d) for d, b, t in grid if b * t <= MOST_TOKENS]


def main() -> int:
    script = Script(__doc__, COLUMNS, rounds=9)
    of = "batch x tokens x head_dim, as 1x512x128,1x512x64 (default: the grid)"
    script.parser.add_argument("--shapes", default="", metavar="LIST", help=of)
    args = script.begin()
    for how in ("one", "many"):
        title = f"{how} in an mx.eval: µs (quartiles)"
        ratios = ("stock/ours", "rms_norms/ours", "of a copy")
        found = table(title, ("tokens, head_dim",), (*SIDES, *ratios))
        for shape in script.tracked(shapes(script.tiny, args.shapes)):
            seconds = measure(script, shape, how, args.rounds)
            ours = seconds["ours"]
            gain = seconds["stock"].over(ours)
            share = seconds["copy"].over(ours)
            least = 1 / OF_STOCK if shape.tokens == 1 and how == "one" else 1.0
            far = how == "many" and shape.tokens >= 4096 and share.median < OF_COPY
            found.add_row(
                shape.label,
                *(seconds[name].spread(".4g", 1e6) for name in SIDES),
                red_if(gain.median < least, gain.spread(".2f")),
                seconds["rms_norms"].over(ours).spread(".2f"),
                red_if(far, share.spread(".2f")),
            )
        script.console.print(found)
    return 0


if __name__ == "__main__":
    sys.exit(main())
