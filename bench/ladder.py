"""The kernels of the LayerNorm and the matmul ladder, on a GPU.

"of the limit" is of a copy's speed for layer norms, and for products of what MLX's own matmul
computes at a large size; "x" is the time of the rung before over this one's.
"""

from __future__ import annotations

import argparse
import functools
import os
from collections.abc import Callable, Iterator

import mlx.core as mx

from harness import clocks, copy_speed, grid, providers
from harness.configs import DTYPES, EPS, Config
from harness.results import Line
from harness.suite import Case, Run, Suite, by_case
from mlx_norms import ladders
from mlx_norms._measure import machine
from mlx_norms._measure.tables import table
from mlx_norms.commands import CommandError

ROWS, LENGTHS = (32, 128, 512, 1024, 2048, 4096, 8192), (768,)
SIZES = (256, 512, 1024, 2048, 4096)
PEAK = {"cuda": 8192, "metal": 4096, "cpu": 64}


def functions(op: str, dtype: mx.Dtype) -> dict[str, Callable]:
    """The rungs that take a dtype, of the arrays of a layer norm or of a product, and MLX's op."""
    if mx.default_device() == mx.cpu:
        raise CommandError("The rungs of the ladders are GPU kernels, and this is the CPU.")
    if op == "sgemm":
        rungs = {r.name: lambda a, b, r=r: ladders.sgemm(a, b, rung=r.name) for r in ladders.SGEMM}
        return rungs | {"mlx": mx.matmul}
    found = {
        r.name: lambda x, w, b, r=r: ladders.layer_norm(x, w, b, EPS, rung=r.name)
        for r in ladders.LAYER_NORM
        if dtype in r.dtypes
    }
    return found | {"mx.fast": lambda x, w, b: mx.fast.layer_norm(x, w, b, EPS)}


FIXES = {rung.name: rung.fixes for rung in (*ladders.LAYER_NORM, *ladders.SGEMM)}


def options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--ops", metavar="NAMES", help="some of layer,sgemm")
    parser.add_argument("--rows", metavar="NUMBERS", help="numbers of rows")
    parser.add_argument("--lengths", metavar="NUMBERS", help="lengths of rows")
    parser.add_argument("--dtypes", metavar="NAMES", help="of layer norms")
    parser.add_argument("--sizes", metavar="NUMBERS", help="rows and columns of the matrices")
    parser.set_defaults(details=False)


def cases(args: argparse.Namespace) -> Iterator[Case]:
    # The peak is float32's, not TF32's, which MLX's matmul uses by default.
    os.environ.setdefault("MLX_ENABLE_TF32", "0")
    ops = grid.names(args.ops, "--ops", ("layer", "sgemm")) or ("layer", "sgemm")
    rows, lengths = grid.numbers(args.rows, "--rows"), grid.numbers(args.lengths, "--lengths")
    dtypes = grid.names(args.dtypes, "--dtypes", DTYPES) or ["float32"]
    sizes = grid.numbers(args.sizes, "--sizes")
    if args.tiny:
        rows, lengths, sizes = rows or [2], lengths or [48], sizes or [8]
    if "layer" in ops:
        for dtype in dtypes:
            for length in lengths or LENGTHS:
                for count in rows or ROWS:
                    yield norm(Config("layer", dtype, count, length))
    if "sgemm" in ops:
        yield from map(product, sizes or SIZES)


def norm(config: Config) -> Case:
    def sides() -> dict:
        return providers.in_turn(
            functions("layer", DTYPES[config.dtype]),
            config.inputs(),
            of_bytes=config.input_bytes,
            output_bytes=config.output_bytes,
        )

    labels = dict(op="layer", dtype=config.dtype, rows=config.rows, length=config.length)
    return Case(labels, sides, config.moved, base="mx.fast")


def product(size: int) -> Case:
    def sides(own: dict | None = None) -> dict:
        inputs = [mx.random.normal((size, size)) for _ in range(2)]
        sizes = dict(of_bytes=8 * size**2, output_bytes=4 * size**2)
        return providers.in_turn(own or functions("sgemm", mx.float32), inputs, **sizes)

    labels = dict(op="sgemm", dtype="float32", rows=size, length=size)
    return Case(labels, sides, 2 * size**3, operations=True, base="mlx")


@functools.cache
def peak(say: Callable[[str], None]) -> float:
    """Operations per second of MLX's matmul at a large size."""
    size = PEAK[machine.backend()]
    large = product(size)
    alone = Case(large.labels, lambda: large.sides({"mlx": mx.matmul}))
    ((_, times),) = clocks.measure([alone], "kernels", rounds=15, say=say)
    rate = 2 * size**3 / times["mlx"].samples.median
    say(f"MLX's matmul of {size}x{size} float32: {rate / 1e9:.4g} GFLOP/s.")
    return rate


@functools.cache
def copy(say: Callable[[str], None]) -> float:
    return copy_speed.rate(copy_speed.LARGE if machine.backend() != "cpu" else 1 << 20, say)


def limit(case: Case, say: Callable[[str], None]) -> float:
    return peak(say) if case.operations else copy(say)


def after(run: Run, lines: list[Line]) -> None:
    """Of each rung its time, share of the limit and the one before over it, and what it fixes."""
    cases = list(by_case(lines))
    for op in dict.fromkeys(labels["op"] for labels, _ in cases):
        of_op = {
            f"{labels['rows']}x{labels['length']} {labels['dtype']}": of
            for labels, of in cases
            if labels["op"] == op
        }
        title = f"{op}: µs, share of the limit, x of the rung before"
        found = table(title, ("rung", "what it fixes"), of_op, lines=False)
        names = list(dict.fromkeys(name for of in of_op.values() for name in of))
        for before, name in zip([None, *names], names):
            is_rung = name in FIXES and before is not None
            cells = [
                _cell(of.get(name), of.get(before) if is_rung else None) for of in of_op.values()
            ]
            found.add_row(name, FIXES.get(name, ""), *cells)
        run.console.print(found)


def _cell(line: Line | None, before: Line | None) -> str:
    if line is None:
        return ""
    x = before.time.samples.over(line.time.samples).text(2) if before else ""
    return f"{line.time.samples.median * 1e6:.4g} {line.share:.1%} {x}"


SUITE = Suite(
    __doc__, ("op", "dtype", "rows", "length"), cases, limit=limit, options=options, after=after
)
