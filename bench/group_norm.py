"""Times group, instance and batch norms, and norms over axis 1, against MLX's layers on a GPU.

Ours, MLX's layer evaluated eagerly, and the same layer under mx.compile take turns, with inputs in
turn past the cache, and a copy of the same bytes is timed in the same run. "of copy" is the share
of its speed that ours reaches. Bytes are those that are needed: each array of x's shape is written
once, and read once if a threadgroup can hold a group and those beside it in the same 32 bytes, of
which memory reads no part, else twice ("reads" in the file); in parentheses is the share if two
reads are counted there, too. "mlx / ours" are times, round by round, with quartiles, of independent
calls in one eval, and "alone" of calls that are evaluated one by one. The gradients are of x,
weight and bias, after the forward was evaluated; the compiled ones compute again what they need of
it.

Times are CUPTI's, by torch's profiler, if torch is installed, or else the slope of the time of
evals over the number of calls. --device cpu tries the script at tiny shapes.
"""

from __future__ import annotations

from harness import beside_mlx
from harness.beside_mlx import LARGE, SLOWER
from harness.images import GROUP_OPS, HELD, OPS, ImageConfig
from harness.script import Script

# UNets, a VAE and TileOPs' shape: each op.
NAMED = ((4, 128, 128, 320), (1, 512, 512, 128), (8, 64, 64, 640), (32, 56, 56, 256))
# One to 32 images, 8x8 to 512x512, 128 to 2560 channels: both orders.
OTHERS = ((16, 64, 64, 320), (32, 32, 32, 1280), (16, 16, 16, 2560), (4, 512, 512, 128))
OTHERS += ((32, 8, 8, 2560),)
DTYPES = (("float32", (4, 128, 128, 320)), ("float16", (4, 128, 128, 320)))
DTYPES += (("float32", (8, 64, 64, 640)),)
# Less than 32 MB in and out: each op but one order's silu.
SMALL = ((1, 1, 2, 128), (1, 8, 8, 1280), (1, 64, 64, 320), (4, 1500, 512), (1, 128, 128, 128))
NO_GRADIENT = 3  # of SMALL, from where MLX's own gradients end in an illegal memory access
TINY = ((2, 4, 4, 64), (1, 3, 64))
OF_COPY = {1: 0.75, 2: 0.6}  # forward, where x is read once and twice
BATCH_OF_COPY = {"batch_training": 0.6, "batch_inference": 0.85}
AXIS1_OF_COPY = 0.85
BACKWARD_GAIN = 3

COLUMNS = ["op", "backward", "dtype", "shape", "groups", "reads", *beside_mlx.COLUMNS]


def chosen() -> list[ImageConfig]:
    found = []
    for backward in (False, True):
        found += [(op, "bfloat16", shape, backward) for shape in NAMED for op in OPS]
        both = GROUP_OPS[:2]
        found += [(op, "bfloat16", shape, backward) for shape in OTHERS for op in both]
        found += [(op, dtype, shape, backward) for dtype, shape in DTYPES for op in both]
        small = [op for op in OPS if op != "group_silu"]
        shapes = SMALL[:NO_GRADIENT] if backward else SMALL
        found += [(op, "bfloat16", shape, backward) for shape in shapes for op in small]
    return [ImageConfig(*of, backward=backward) for *of, backward in found]


def misses_target(config: ImageConfig, of_copy: float, gains: list[float]) -> bool:
    if config.moved < LARGE:
        return min(gains) < SLOWER
    if config.op.endswith("axis1"):
        return gains[0] < SLOWER if config.backward else of_copy < AXIS1_OF_COPY
    if config.backward:
        return gains[0] < BACKWARD_GAIN
    return of_copy < BATCH_OF_COPY.get(config.op, OF_COPY[config.reads])


def share_text(config: ImageConfig, share: float) -> str:
    if config.reads == 2 or config.op not in HELD:
        return f"{share:.1%}"
    return f"{share:.1%} ({share * config.moved_twice / config.moved:.0%})"


def main() -> None:
    script = Script(__doc__, COLUMNS, rounds=5)
    add = script.parser.add_argument
    add("--ops", default=",".join(OPS), help="of " + ", ".join(OPS))
    add("--dtypes", default="bfloat16,float16,float32", help="of %(default)s")
    add("--shapes", default="", help="of the list, as in 4x128x128x320,1x8x8x1280; default: all")
    args = script.begin()
    configs = chosen()
    if script.tiny:
        configs = [
            ImageConfig(op, "bfloat16", shape, backward=backward)
            for op in OPS
            for shape in TINY
            for backward in (False, True)
        ]
    configs = [
        config
        for config in configs
        if config.op in args.ops.split(",")
        and config.dtype in args.dtypes.split(",")
        and (not args.shapes or config.shape in args.shapes.split(","))
    ]
    beside_mlx.run(
        script,
        "ours beside MLX's layers",
        configs,
        ImageConfig.functions,
        lambda c: [c.op, c.backward, c.dtype, c.shape, c.groups, c.reads],
        misses_target,
        rounds=args.rounds,
        share_text=share_text,
    )
