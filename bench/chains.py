"""Times the ops that do what models write around a norm against MLX's chains of ops on a GPU.

Ours, MLX's chain evaluated eagerly, and the same chain under mx.compile take turns, with inputs in
turn past the cache, and a copy of the same bytes is timed in the same run. "of copy" is the share
of its speed that ours reaches, each tensor of x's shape counted once; "mlx / ours" are times, round
by round, with quartiles, of independent calls in one eval, and "alone" of calls that are evaluated
one by one. The gradients are of all inputs, after the forward was evaluated; the compiled ones
compute again what they need of it.

Times are CUPTI's, by torch's profiler, if torch is installed, or else the slope of the time of
evals over the number of calls. --device cpu tries the script at tiny shapes.
"""

from __future__ import annotations

import itertools

from harness import beside_mlx
from harness.beside_mlx import LARGE, SLOWER
from harness.configs import OPS, Config
from harness.script import Script

CHAINS = ("ada", "add_ada", "gated_rms", "norm_add_norm")
LENGTHS = (1152, 1536, 3072, 4096, 5120)
ROWS = (1, 32, 512, 4096, 16384)
OF_COPY = 0.85
BACKWARD_GAIN = {"norm_add_norm": 1.35}  # MLX's own is near a copy's speed; 2 for others

COLUMNS = ["op", "backward", "dtype", "rows", "length", *beside_mlx.COLUMNS]


def misses_target(config: Config, of_copy: float, gains: list[float]) -> bool:
    if config.moved < LARGE:
        return min(gains) < SLOWER
    if config.backward:
        return gains[0] < BACKWARD_GAIN.get(config.op, 2)
    return of_copy < OF_COPY


def main() -> None:
    script = Script(__doc__, COLUMNS, rounds=5)
    add = script.parser.add_argument
    add("--ops", default=",".join(CHAINS), help="of " + ", ".join(OPS))
    add("--dtypes", default="bfloat16", help="of bfloat16,float16,float32")
    add("--rows", default=",".join(map(str, ROWS)), help="numbers of rows")
    add("--lengths", default=",".join(map(str, LENGTHS)), help="lengths of rows")
    args = script.begin()
    lengths, rows = ([int(n) for n in of.split(",")] for of in (args.lengths, args.rows))
    if script.tiny:
        lengths, rows = (64, 96), (1, 4)
    configs = [
        Config(op, dtype, count, length, backward)
        for op, backward, dtype, length, count in itertools.product(
            args.ops.split(","), (False, True), args.dtypes.split(","), lengths, rows
        )
    ]
    beside_mlx.run(
        script,
        "ours beside MLX's chain of ops",
        configs,
        lambda config: (OPS[config.op].ours, OPS[config.op].fast),
        lambda config: [config.op, config.backward, config.dtype, config.rows, config.length],
        misses_target,
        rounds=args.rounds,
    )
