"""Calls of the norms through mx.eval against mx.fast's on a GPU: one row, large shapes, a grid.

A call's time is from building the graph to the result, with many independent calls per eval.
Configs are red that take more than 1.03 times as long as a peer.
"""

from __future__ import annotations

import argparse
import itertools
from collections.abc import Iterator

import gpu_speed
from harness.configs import Config
from harness.suite import Case, Suite

GRID = list(itertools.product((1, 32, 512, 4096, 32768), (128, 768, 4096, 8192, 16384)))
SECTIONS = {
    "calls, one row": [(1, 4096)],
    "calls, large": [*gpu_speed.LARGE, gpu_speed.SHORT],
    "calls, grid": GRID,
}
LEAST = 1 / 1.03
LAYER_LEAST = 2.0  # times as fast as mx.fast, at large shapes


def cases(args: argparse.Namespace) -> Iterator[Case]:
    for section, shapes in SECTIONS.items():
        for op, dtype, shape in itertools.product(gpu_speed.OPS, gpu_speed.DTYPES, shapes):
            rows, length = (min(16, shape[0]), min(96, shape[1])) if args.tiny else shape
            of = gpu_speed.case(args, section, Config(op, dtype, rows, length))
            fast = LAYER_LEAST if op == "layer" and shape in gpu_speed.LARGE else LEAST
            least = dict.fromkeys(args.peers, LEAST) | {"mx.fast": fast}
            yield Case(of.labels, of.sides, least=least, alive=of.alive)


SUITE = Suite(
    __doc__,
    ("section", "op", "dtype", "rows", "length"),
    cases,
    ("many",),
    sample_seconds=0.022,  # so that an evaluation's start does not count
)
