"""A call over how many calls are evaluated together, with all of their outputs kept, on a GPU.

Add + rms norm by this package and by MLX's two ops, and MLX's add alone. With tens of GB of outputs
in one mx.eval, buffers of some sizes take twice the time, whichever kernel writes them.
"""

from __future__ import annotations

import argparse
import itertools
from collections.abc import Iterator

import mlx.core as mx

from harness.configs import Config
from harness.providers import Calls
from harness.suite import Case, Suite

SHAPES = ((512, 8192), (4096, 768), (4096, 4096))
CALLS = (64, 400, 1600)


def case(rows: int, length: int, count: int) -> Case:
    config = Config("add_rms", "bfloat16", rows, length)

    def sides() -> dict:
        mx.clear_cache()
        inputs, (ours, fast) = config.inputs(), config.functions()
        mx.eval(inputs)
        functions = {"ours": ours, "add, mx.fast": fast, "add alone": lambda x, r, w: (x + r,)}
        return {side: Calls(function, [inputs]) for side, function in functions.items()}

    about = dict(dtype="bf16", rows=rows, length=length)
    about["output_gb"] = count * config.output_bytes / 1e9
    return Case(about, sides, count=count)


def cases(args: argparse.Namespace) -> Iterator[Case]:
    for shape, count in itertools.product(*([[(16, 96)], [64]] if args.tiny else [SHAPES, CALLS])):
        yield case(*shape, count)


SUITE = Suite(__doc__, ("dtype", "rows", "length", "output_gb"), cases, ("many",))
