"""The norms' kernels against mx.fast's and a copy on a GPU, in one run, for the stored tables.

Sections, of which --only takes one:

  kernels           large shapes
  backward          the same for the gradients of every input, with the forward already evaluated
  lengths           as kernels, for rows of many lengths, of about as many elements
  lengths_backward  as backward, for these rows

Bytes are those of the tensors of x's shape, each counted once: 2 forward (4 with a residual), 3
backward (4). The copy is of 1 GiB to 1 GiB. "alone" is a call that is evaluated by itself.
"""

from __future__ import annotations

import argparse
import itertools
from collections.abc import Iterator

from harness import grid
from harness.configs import LENGTHS as ROW_LENGTHS
from harness.configs import Config
from harness.suite import Case, Suite
from ladder import copy

OPS = ("rms", "layer", "add_rms")
DTYPES = {"bfloat16": "bf16", "float16": "f16", "float32": "f32"}
LARGE = ((32768, 4096), (8192, 8192), (4096, 16384))
SHORT = (8192, 768)
LENGTHS = [((1 << 26) // length, length) for length in ROW_LENGTHS]
FORWARD, SHORT_FORWARD, BACKWARD = 0.95, 0.75, 0.90  # shares of the copy
SECTIONS = {
    "kernels": (DTYPES, [*LARGE, SHORT], False),
    "backward": (DTYPES, LARGE, True),
    "lengths": (["bfloat16", "float32"], LENGTHS, False),
    "lengths_backward": (["bfloat16", "float32"], LENGTHS, True),
}


def cases(args: argparse.Namespace) -> Iterator[Case]:
    for section, (dtypes, shapes, backward) in SECTIONS.items():
        of_section = list(itertools.product(OPS, dtypes, shapes))
        for op, dtype, shape in of_section[:: len(of_section) // 2] if args.tiny else of_section:
            rows, length = (min(16, shape[0]), min(96, shape[1])) if args.tiny else shape
            yield case(args, section, Config(op, dtype, rows, length, backward))


def case(args: argparse.Namespace, section: str, config: Config) -> Case:
    share = SHORT_FORWARD if (config.rows, config.length) == SHORT else FORWARD
    least = dict(share=BACKWARD if config.backward else share)
    of = grid.case(config, args.peers)
    labels = dict(section=section) | of.labels | dict(dtype=DTYPES[config.dtype])
    return Case(labels, of.sides, config.moved, least=least, alive=of.alive)


SUITE = Suite(
    __doc__,
    ("section", "op", "dtype", "rows", "length"),
    cases,
    limit=lambda case, say: copy(say),
)
