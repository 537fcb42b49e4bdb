"""Operations of MLX after a call of each op of ours on the CPU, against the same after none.

A kernel can slow down what comes after it: by registers it leaves in a state, with which other code
takes longer, or by what it puts out of the caches. Each side is a convolution, a product of
matrices and elementwise operations: right after a call of ours on its stream's thread; after MLX's
own for what the op computes; or on a thread that has run neither. Times are the process's on all
cores. The exit status is 1 if ours was seen to leave less than 0.98 of both others.
"""

from __future__ import annotations

import argparse
import itertools
from collections.abc import Callable, Iterator

import mlx.core as mx

from harness.configs import DTYPES
from harness.results import Line
from harness.suite import Case, Run, Suite, by_case, result_table
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


def operations(stream: mx.Stream, before: Callable[[], None]) -> timing.Runs:
    random = mx.random.normal
    images, filters = random((2, 8, 8, 32)), random((32, 3, 3, 32))
    a, b = random((128, 128)), random((128, 128))

    def run(count: int) -> None:
        for _ in range(count):
            convolved = mx.conv2d(images, filters, padding=1)
            mx.eval(convolved, mx.exp(a) * b + a, a @ b)

    def prepare(count: int) -> int:
        before()
        return count

    return timing.Runs(run, lambda: mx.stream(stream), prepare, "process_time")


def call_of(name: str, dtype: str, size: str, way: str, *, stock: bool) -> Callable[[], None]:
    """A call of ours, or of MLX's for the same, which evaluates what it returns."""
    op = OPS[name]
    sizes = {c: -(-n // m) * m for c, n in SIZES[size].items() for m in [op.multiple.get(c, 1)]}
    shapes = [op.shape(name, sizes | op.fixed) for name in op.inputs]
    arrays = [mx.abs(mx.random.normal(shape)).astype(DTYPES[dtype]) for shape in shapes]
    function = op.stock() if stock else op.ours()
    cotangents = [mx.ones_like(result) for result in function(*arrays)]
    mx.eval(arrays, cotangents)
    if way == "backward":
        return lambda: mx.eval(mx.vjp(function, arrays, cotangents)[1])
    return lambda: mx.eval(function(*arrays))


def cases(args: argparse.Namespace) -> Iterator[Case]:
    streams = [mx.new_stream(mx.cpu) for _ in range(2)]
    names = [name for name, op in OPS.items() if op.backends is None]
    for config in itertools.product(names, DTYPES, SIZES, ("forward", "backward")):

        def sides(config=config) -> dict:
            return {
                "ours": operations(streams[1], call_of(*config, stock=False)),
                "alone": operations(streams[0], mx.synchronize),
                "after MLX's": operations(streams[1], call_of(*config, stock=True)),
            }

        labels = dict(zip(("op", "dtype", "size", "way"), config, strict=True))
        yield Case(labels, sides, count=EVALS)


def slowed(run: Run, lines: list[Line]) -> int:
    """A table of the least, and whether ours leaves less than both others anywhere."""

    def least(of: dict[str, Line]) -> float:
        return max(line.over.median for line in of.values() if line.over)

    found = sorted((least(of), id(labels)) for labels, of in by_case(lines))
    shown = {place for _, place in found[:SHOWN]}
    least_ones = [line for line in lines if id(line.labels) in shown]
    run.console.print(result_table(run.suite, least_ones, "The least"))
    lost = [
        labels
        for labels, of in by_case(lines)
        if least(of) < LEAST and all(x.over.interval[1] < 1 for x in of.values() if x.over)
    ]
    run.say(f"{len(lost)} of {len(found)} calls leave MLX's operations less than {LEAST} of both.")
    return 1 if lost else 0


SUITE = Suite(
    __doc__,
    ("op", "dtype", "size", "way"),
    cases,
    ("wall",),
    device="cpu",
    after=slowed,
    options=lambda parser: parser.set_defaults(details=False),
)
