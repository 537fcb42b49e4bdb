"""The ops that do what models write around a norm against MLX's chains of ops on a GPU.

Ours, MLX's chain evaluated eagerly, and the same chain under mx.compile take turns, with inputs in
turn past the cache; shares are of a copy of the tensors of x's shape, each counted once. The
gradients are of all inputs, after the forward was evaluated; the compiled ones compute again what
they need of it.
"""

from __future__ import annotations

import argparse
import itertools
from collections.abc import Iterator

from harness import beside_mlx
from harness.configs import Config
from harness.suite import Case, Suite

OPS = ("ada", "add_ada", "gated_rms", "norm_add_norm")
LENGTHS = (1152, 1536, 3072, 4096, 5120)
ROWS = (1, 32, 512, 4096, 16384)
OF_COPY = 0.85
GAIN, GAINS = 2, {"norm_add_norm": 1.35}  # of gradients; MLX's own is near a copy's speed


def cases(args: argparse.Namespace) -> Iterator[Case]:
    lengths, rows = ((64, 96), (1, 4)) if args.tiny else (LENGTHS, ROWS)
    for op, backward, length, count in itertools.product(OPS, (False, True), lengths, rows):
        config = Config(op, "bfloat16", count, length, backward)
        about = dict(op=op, backward=backward, dtype="bfloat16", rows=count, length=length)
        least = dict(eager=GAINS.get(op, GAIN)) if backward else dict(share=OF_COPY)
        yield beside_mlx.case(config, about, least)


SUITE = Suite(__doc__, ("op", "backward", "dtype", "rows", "length"), cases)
