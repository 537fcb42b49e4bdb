"""Group, instance and batch norms on the CPU beside mlx.nn's layers, in samples of any size.

There are 1 to 10^6 samples of 1 to 10^6 elements, 2^22 elements at most, as vectors of channels, as
few positions of many channels and as many of few; group norms are in both orders of channels.
"forward" is the norm, "input" the gradient of x, "all" those of x, weight and bias, with what they
need of the forward; instance norms have no parameters. The exit status is 1 if mlx.nn was seen to
be faster anywhere.

The script restarts itself with glibc's malloc set to keep freed memory (conditions.py says why);
--default-malloc measures without that.
"""

from __future__ import annotations

import argparse
import itertools
from collections.abc import Iterator

import mlx.core as mx

from cpu_vs_fast import slower
from harness.configs import DTYPES
from harness.images import ImageConfig
from harness.providers import Calls
from harness.suite import Case, Suite

OPS = ("group", "group_pytorch", "instance", "batch_training")
SAMPLES = (1, 30, 1000, 30_000, 1_000_000)
# Positions, channels and groups of a sample.
SHAPES = ((1, 1, 1), (1, 8, 2), (4, 2, 1), (1, 32, 8), (16, 2, 1), (1, 64, 8), (4, 16, 4))
SHAPES += ((1, 256, 32), (4, 64, 8), (64, 4, 2), (1, 1000, 10), (16, 64, 1), (300, 3, 1))
SHAPES += ((1, 10_000, 1250), (9, 1152, 32), (100, 100, 20), (5000, 2, 2), (1, 100_000, 1))
SHAPES += ((49, 2048, 32), (1024, 96, 32), (30_000, 3, 3), (1, 1_000_000, 1000))
SHAPES += ((1000, 1000, 25), (65_536, 16, 4), (500_000, 2, 2))
MOST = 1 << 22
WAYS = ("forward", "input", "all")


def sides(config: ImageConfig, way: str) -> dict[str, Calls]:
    """Ours and MLX's, by name."""
    inputs, cotangents = config.inputs(), config.cotangents()
    mx.eval(inputs, cotangents)
    wanted = inputs[: {"forward": 0, "input": 1}.get(way)]

    def call(function):
        if way == "forward":
            return lambda: function(*inputs)
        of = lambda *some: function(*some, *inputs[len(some) :])  # noqa: E731
        return lambda: mx.vjp(of, wanted, cotangents)[1]

    both = zip(("ours", "mlx"), map(call, config.functions()), strict=True)
    return {name: Calls(function, [[]], None, config.output_bytes) for name, function in both}


def cases(args: argparse.Namespace) -> Iterator[Case]:
    for op, way, dtype, shape, samples in itertools.product(OPS, WAYS, DTYPES, SHAPES, SAMPLES):
        positions, channels, groups = shape
        sizes = (samples, positions, channels) if positions > 1 else (samples, channels)
        config = ImageConfig(op, dtype, sizes, groups, backward=way != "forward")
        values = samples * positions
        known = op not in ("instance", "batch_training") or values > 1
        known = known and not (op == "instance" and (positions == 1 or way == "all"))
        if known and values * channels <= MOST:
            about = dict(op=op, dtype=dtype, way=way, samples=samples, positions=positions)
            about |= dict(channels=channels, groups=groups)
            yield Case(about, lambda c=config, w=way: sides(c, w), least=dict(mlx=1.0))


LABELS = ("op", "dtype", "way", "samples", "positions", "channels", "groups")
SUITE = Suite(__doc__, LABELS, cases, ("many",), device="cpu", sample_seconds=0.005, after=slower)
