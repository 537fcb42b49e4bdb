"""Times group, instance and batch norms on the CPU beside mlx.nn's layers, in samples of any size.

There are 1 to 10^6 samples of 1 to 10^6 elements, 2^22 elements at most, as vectors of channels, as
few positions of many channels and as many of few; group norms are in both orders of channels.
"forward" is the norm, "input" the gradient of x, "all" those of x, weight and bias, with what they
need of the forward; instance norms have no parameters.

A ratio is mlx.nn's time over ours, taken round by round, of calls that are evaluated together:
above 1, ours is faster. Where ours did not win three quarters of the rounds it is measured again,
for longer, and that result counts: it is slower if ours lost three quarters. The exit status is 1
if any is.

The script restarts itself with glibc's malloc set to keep freed memory (machine.py says why);
--default-malloc measures without that.
"""

from __future__ import annotations

import itertools

import mlx.core as mx

from harness.configs import DTYPES
from harness.images import ImageConfig
from harness.script import Script
from harness.tables import red_if, table
from mlx_norms._measure import timing

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

COLUMNS = ["op", "dtype", "way", "samples", "positions", "channels", "groups"]
COLUMNS += ["mlx_us", "ours_us", "mlx_over_ours", "lower_quartile", "upper_quartile", "rounds"]


def configs(only: str) -> list[tuple[ImageConfig, str]]:
    found = []
    for op, way, dtype, shape, samples in itertools.product(OPS, WAYS, DTYPES, SHAPES, SAMPLES):
        positions, channels, groups = shape
        sizes = (samples, positions, channels) if positions > 1 else (samples, channels)
        config = ImageConfig(op, dtype, sizes, groups, backward=way != "forward")
        values = samples * positions
        known = op not in ("instance", "batch_training") or values > 1
        known = known and not (op == "instance" and (positions == 1 or way == "all"))
        if known and values * channels <= MOST and only in f"{op} {dtype} {way} {config.shape} ":
            found.append((config, way))
    return found


def calls(config: ImageConfig, way: str) -> dict:
    """Ours and MLX's, by name."""
    inputs, cotangents = config.inputs(), config.cotangents()
    mx.eval(inputs, cotangents)
    wanted = inputs[: {"forward": 0, "input": 1}.get(way)]

    def call(function):
        if way == "forward":
            return lambda: function(*inputs)
        of = lambda *some: function(*some, *inputs[len(some) :])  # noqa: E731
        return lambda: mx.vjp(of, wanted, cotangents)[1]

    return dict(zip(("ours", "mlx"), map(call, config.functions()), strict=True))


def measure(config: ImageConfig, way: str) -> tuple[dict[str, timing.Samples], timing.Ratio]:
    both = calls(config, way)
    for rounds, sample_seconds in ((3, 0.002), (12, 0.01)):
        seconds = timing.measure(both, rounds=rounds, sample_seconds=sample_seconds)
        ratio = seconds["mlx"].over(seconds["ours"])
        if ratio.interval[0] >= 1:
            break
    return seconds, ratio


def main() -> int:
    script = Script(__doc__, COLUMNS, device="cpu")
    script.parser.add_argument(
        "--only", default="", metavar="TEXT", help="of OP DTYPE forward|input|all SHAPE"
    )
    args = script.begin()
    slower, total = [], 0
    for config, way in script.tracked(configs(args.only)):
        seconds, ratio = measure(config, way)
        samples, *positions, channels = config.sizes
        script.write(
            *(config.op, config.dtype, way, samples, *(positions or [1]), channels, config.groups),
            *(seconds[of].median * 1e6 for of in ("mlx", "ours")),
            *(*ratio.figures(), len(ratio.values)),
        )
        total += 1
        if ratio.interval[1] < 1:
            slower.append((ratio, config, way))
    found = table("Slower", ("op", "way", "dtype", "shape"), ("groups", "mlx.nn / ours"))
    for ratio, config, way in sorted(slower, key=lambda each: each[0].median):
        figure = red_if(True, ratio.spread(".2f"))
        found.add_row(config.op, way, config.dtype, config.shape, str(config.groups), figure)
    script.console.print(found)
    script.say(f"{len(slower)} of {total} are slower than mlx.nn.")
    return 1 if slower else 0
