"""Every norm against mx.fast on the CPU, forward and backward, at the shapes of the tests.

Forward is the op as called (for add+norm, against mx.fast's norm of x + residual); vjp is the
gradient of every input from given cotangents. The exit status is 1 if mx.fast was seen to be
faster anywhere.

The script restarts itself with glibc's malloc set to keep freed memory (conditions.py says why);
--default-malloc measures without that.
"""

from __future__ import annotations

import argparse
import itertools
from collections.abc import Iterator

from harness import providers
from harness.configs import DTYPES, Config
from harness.results import Line
from harness.suite import Case, Run, Suite, result_table

NORMS = ("rms", "layer", "add_rms", "add_layer")
EDGES = [32, 64, 128, 256, 512, 1024, 4096, 8192]
LENGTHS = [1, 2, *(edge + off for edge in EDGES for off in (-1, 0, 1)), 65536]
ROWS = [1, 3, 513]
QUICK_LENGTHS, QUICK_ROWS = [1, 33, 1023, 4096], [3, 513]
MOST_ROWS_UP_TO = 8193  # longer rows are timed with fewer rows


def cases(args: argparse.Namespace) -> Iterator[Case]:
    lengths, rows = (QUICK_LENGTHS, QUICK_ROWS) if args.quick else (LENGTHS, ROWS)
    grid = itertools.product(NORMS, (False, True), DTYPES, lengths, rows)
    for op, backward, dtype, length, count in grid:
        if length <= MOST_ROWS_UP_TO or count < max(ROWS):
            config = Config(op, dtype, count, length, backward)
            labels = dict(op=config.label + " vjp" * backward, dtype=dtype)
            labels |= dict(rows=count, length=length)
            sides = lambda c=config: providers.sides_of(c, ["mx.fast"], hot=True)  # noqa: E731
            yield Case(labels, sides, least={"mx.fast": 1.0})


def slower(run: Run, lines: list[Line]) -> int:
    """A table of what is slower than MLX's, if anything is."""
    lost = [line for line in lines if line.over and line.over.interval[1] < 1]
    of_lost = [line for line in lines if any(line.labels is other.labels for other in lost)]
    if lost:
        run.console.print(result_table(run.suite, of_lost, "Slower"))
    run.say(f"{len(lost)} of {sum(line.over is not None for line in lines)} are slower.")
    return 1 if lost else 0


def options(parser: argparse.ArgumentParser) -> None:
    quick = "fewer shapes, in about a minute on two cores"
    parser.add_argument("--quick", action="store_true", help=quick)


LABELS = ("op", "dtype", "rows", "length")
SUITE = Suite(
    __doc__,
    LABELS,
    cases,
    ("many",),
    device="cpu",
    options=options,
    sample_seconds=0.003,
    after=slower,
)
