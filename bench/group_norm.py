"""Group, instance and batch norms, and norms over axis 1, against MLX's layers on a GPU.

Ours, MLX's layer evaluated eagerly, and the same layer under mx.compile take turns, with inputs in
turn past the cache. Shares are of a copy of the bytes that are needed: each array of x's shape is
written once, and read once if a threadgroup can hold a group and those beside it in the same 32
bytes, of which memory reads no part, else twice ("reads"). The gradients are of x, weight and bias,
after the forward was evaluated; the compiled ones compute again what they need of it.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator

from harness import beside_mlx
from harness.images import GROUP_OPS, OPS, ImageConfig
from harness.suite import Case, Suite

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


def configs(tiny: bool) -> Iterator[ImageConfig]:
    for backward in (False, True):
        shapes = [(op, "bfloat16", shape) for shape in TINY for op in OPS]
        if not tiny:
            both = GROUP_OPS[:2]
            shapes = [(op, "bfloat16", shape) for shape in NAMED for op in OPS]
            shapes += [(op, "bfloat16", shape) for shape in OTHERS for op in both]
            shapes += [(op, dtype, shape) for dtype, shape in DTYPES for op in both]
            small = [op for op in OPS if op != "group_silu"]
            of_way = SMALL[:NO_GRADIENT] if backward else SMALL
            shapes += [(op, "bfloat16", shape) for shape in of_way for op in small]
        for op, dtype, shape in shapes:
            yield ImageConfig(op, dtype, shape, backward=backward)


def least(config: ImageConfig) -> dict[str, float]:
    if config.op.endswith("axis1"):
        slower = dict(eager=beside_mlx.SLOWER)
        return slower if config.backward else dict(share=AXIS1_OF_COPY)
    if config.backward:
        return dict(eager=BACKWARD_GAIN)
    return dict(share=BATCH_OF_COPY.get(config.op, OF_COPY[config.reads]))


def cases(args: argparse.Namespace) -> Iterator[Case]:
    for config in configs(args.tiny):
        about = {name: getattr(config, name) for name in SUITE.labels}
        yield beside_mlx.case(config, about, least(config))


SUITE = Suite(__doc__, ("op", "backward", "dtype", "shape", "groups", "reads"), cases)
