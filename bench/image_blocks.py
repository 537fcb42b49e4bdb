"""Blocks of image models as mflux has them against the same with our norms.

"transformer": of Qwen-Image's transformer, for an image of 4096 tokens and a text of 256, against
the same code written with our norms. "decoder block" and "UNet block": of FLUX's autoencoder, one
with three residual blocks and an upsampling, and the middle one with attention; our group norms are
in them by mlx_norms.nn.replace and by mlx_norms.patch(). All are at full width with random weights.
Forward, and a training step: the loss with the gradients of all weights and of the inputs. "error"
is the distance of the outputs from those in float32, relative to their size, and for a step that of
the gradients; the memory is the most that was taken in a call.

It needs mflux, without what mflux needs: pip install --no-deps mflux.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator

import mlx.core as mx

from harness import blocks, diffusion, vae
from harness.blocks import Side
from harness.configs import DTYPES
from harness.suite import Case, Suite

SIDE = {"decoder block": 256, "UNet block": 64}  # of an image of 512 pixels
TINY = 4
DTYPE = "bfloat16"


def transformer(tiny: bool) -> Iterator[Case]:
    sizes = diffusion.TINY if tiny else diffusion.Sizes()
    block, _ = diffusion.build(sizes, DTYPES[DTYPE])
    sides = {"mflux": diffusion.stock, "ours": diffusion.ours}
    yield from blocks.cases(
        "transformer",
        DTYPE,
        {name: Side(blocks.forward(side, block)) for name, side in sides.items()},
        blocks.forward(diffusion.stock, block),
        [block.parameters(), *diffusion.inputs(sizes, DTYPES[DTYPE])],
        2,
        base="mflux",
    )


def decoder(name: str, tiny: bool) -> Iterator[Case]:
    of_sides = vae.sides(name, DTYPES[DTYPE])
    exact, _ = vae.build(name, mx.float32)
    image = vae.image(name, TINY if tiny else SIDE[name], DTYPES[DTYPE])
    yield from blocks.cases(
        name,
        DTYPE,
        {side: Side(blocks.forward(*of)) for side, of in of_sides.items()},
        blocks.forward(vae.called, exact),
        [of_sides["mflux"][1].parameters(), image],
        1,
        base="mflux",
    )


def cases(args: argparse.Namespace) -> Iterator[Case]:
    yield from transformer(args.tiny)
    for name in vae.BLOCKS:
        yield from decoder(name, args.tiny)


SUITE = Suite(__doc__, blocks.LABELS, cases, ("one",), base="mflux", extras=("peak_mb", "error"))
