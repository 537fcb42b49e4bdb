"""Times operations of MLX after a call of each op of ours on the CPU, against the same alone.

A kernel can slow down what comes after it: by registers it leaves in a state, with which other code
takes longer, or by what it puts out of the caches. Each sample is a convolution, a product of
matrices and elementwise operations, right after a call of ours on its stream's thread; "alone" is
the same on a stream of its own, whose thread has run nothing of ours. Both take turns. The share is
the process's CPU time alone over that after ours: the median of the rounds, with quartiles. Where
it is below 0.98 it is measured again after all others, twice and for longer. Where it stays so, the
same operations are timed right after MLX's own for what the op computes, as its products put more
out of the caches than a norm: the exit status is 1 if ours leave less than 0.98 of that, too. A
median with 1 between its quartiles is noise.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable

import mlx.core as mx

from harness.configs import DTYPES
from harness.script import Script
from harness.tables import red_if, table
from mlx_norms._measure import timing
from mlx_norms._table import OPS

LEAST = 0.98
EVALS = 3  # in a sample
SHOWN = 10
# By the letters of the table.
SIZES = {
    "few elements": dict(B=2, N=4, L=4, P=4, H=4, K=2, D=32, C=16, M=16),
    "more": dict(B=2, N=64, L=64, P=2, H=4, K=2, D=130, C=36, M=64),
}

Config = tuple[str, str, str, bool]  # the names of an op, a dtype and sizes; whether backward


def operations(stream: mx.Stream, ours: Callable[[], None] = mx.synchronize) -> timing.Runs:
    """Calls of MLX's own, after one of ours or alone."""
    random = mx.random.normal
    images, filters = random((2, 8, 8, 32)), random((32, 3, 3, 32))
    a, b = random((128, 128)), random((128, 128))

    def run(count: int) -> None:
        for _ in range(count):
            convolved = mx.conv2d(images, filters, padding=1)
            mx.eval(convolved, mx.exp(a) * b + a, a @ b)

    return timing.Runs(run, lambda: mx.stream(stream), ours, "process_time")


def call_of(
    name: str, dtype: str, size: str, backward: bool, *, stock: bool = False
) -> Callable[[], None]:
    """A call of ours, or of MLX's for the same, which evaluates what it returns."""
    op = OPS[name]
    sizes = {c: -(-n // m) * m for c, n in SIZES[size].items() for m in [op.multiple.get(c, 1)]}
    shapes = [op.shape(name, sizes | op.fixed) for name in op.inputs]
    arrays = [mx.abs(mx.random.normal(shape)).astype(DTYPES[dtype]) for shape in shapes]
    function = op.stock() if stock else op.ours()
    cotangents = [mx.ones_like(result) for result in function(*arrays)]
    mx.eval(arrays, cotangents)
    if backward:
        return lambda: mx.eval(mx.vjp(function, arrays, cotangents)[1])
    return lambda: mx.eval(function(*arrays))


def is_less(share: timing.Ratio) -> bool:
    return share.median < LEAST and share.interval[1] < 1


def measure(
    config: Config, streams: list[mx.Stream], rounds: int, stock: bool = False
) -> timing.Ratio:
    """The time alone over that after ours or, with ``stock``, that after MLX's over that."""
    before = [call_of(*config, stock=True)] if stock else []
    sides = {
        "other": operations(streams[0], *before),
        "after": operations(streams[1], call_of(*config)),
    }
    seconds = timing.measure(sides, rounds=rounds, count=EVALS)
    return seconds["other"].over(seconds["after"])


def main() -> int:
    script = Script(__doc__, device="cpu", rounds=9)
    script.parser.add_argument("--only", default="", metavar="TEXT", help="ops that have this")
    args = script.begin()
    streams = [mx.new_stream(mx.cpu) for _ in range(2)]
    names = [name for name, op in OPS.items() if args.only in name and op.backends is None]
    left = [*itertools.product(names, DTYPES, SIZES, (False, True))]
    shares = {}
    for more in (1, 4, 4):
        for config in script.tracked(left):
            shares[config] = measure(config, streams, more * args.rounds)
        left = [config for config in left if is_less(shares[config])]
    of_stock = {config: measure(config, streams, 4 * args.rounds, stock=True) for config in left}
    columns = ("share of alone", "of after MLX's")
    found = table("The least", ("op", "", "dtype", "size"), columns)
    least = sorted(shares, key=lambda config: shares[config].median)
    for config in least[: max(len(left), SHOWN)]:
        name, dtype, size, backward = config
        pair = (shares[config], of_stock.get(config))
        figures = [red_if(is_less(s), s.spread(".2f")) if s else "" for s in pair]
        found.add_row(name, "backward" if backward else "forward", dtype, size, *figures)
    script.console.print(found)
    slower = [config for config, share in of_stock.items() if is_less(share)]
    script.say(
        f"{len(left)} of {len(shares)} calls leave MLX's less than {LEAST} of alone, {len(slower)} "
        "also less than MLX's own for the same."
    )
    return 1 if slower else 0
