"""Times blocks of image models as mflux has them against the same with our norms.

"transformer": of Qwen-Image's transformer, for an image of 4096 tokens and a text of 256, against
the same code written with our norms. "decoder block" and "UNet block": of FLUX's autoencoder, one
with three residual blocks and an upsampling, and the middle one with attention; our group norms are
in them by mlx_norms.nn.replace and by mlx_norms.patch(). All are at full width with random weights.
Forward, and a training step: the loss with the gradients of all weights and of the inputs. The
sides run eagerly and under mx.compile, in turn; the time is the host's for an evaluated call, with
quartiles, and the memory the most that was taken in a call. "error" is the distance of the outputs
from those in float32, relative to their size, and for a step that of the gradients.

It needs mflux, without what mflux needs: pip install --no-deps mflux. --device cpu tries the script
with tiny sizes.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import mlx.core as mx

from harness import blocks, diffusion, vae
from harness.configs import DTYPES
from harness.script import Script

SIDE = {"decoder block": 256, "UNet block": 64}  # of an image of 512 pixels
TINY = 4


class Measured(NamedTuple):
    """What blocks.compare takes: functions of the arrays, of which the first are weights."""

    about: str
    sides: dict[str, Callable]
    exact: Callable
    arrays: list
    inputs: int


def transformer(tiny: bool, dtype: mx.Dtype) -> Measured:
    sizes = diffusion.TINY if tiny else diffusion.Sizes()
    block, source = diffusion.build(sizes, dtype)
    sides = {"mflux": diffusion.stock, "ours": diffusion.ours}
    return Measured(
        f"{source}, {sizes}",
        {name: blocks.forward(side, block) for name, side in sides.items()},
        blocks.forward(diffusion.stock, block),
        [block.parameters(), *diffusion.inputs(sizes, dtype)],
        2,
    )


def decoder(name: str, tiny: bool, dtype: mx.Dtype) -> Measured:
    side = TINY if tiny else SIDE[name]
    of_sides = vae.sides(name, dtype)
    exact, source = vae.build(name, mx.float32)
    return Measured(
        f"{source}, {side}x{side}",
        {side: blocks.forward(*of) for side, of in of_sides.items()},
        blocks.forward(vae.called, exact),
        [of_sides["mflux"][1].parameters(), vae.image(name, side, dtype)],
        1,
    )


def main() -> None:
    script = Script(__doc__, ["block", *blocks.COLUMNS], rounds=9)
    add, names = script.parser.add_argument, ("transformer", *vae.BLOCKS)
    add("--dtype", default="bfloat16", help="of " + ", ".join(DTYPES))
    add("--blocks", default=",".join(names), help="of %(default)s")
    args = script.begin()
    for name in args.blocks.split(","):
        of = (script.tiny, DTYPES[args.dtype])
        block = transformer(*of) if name == "transformer" else decoder(name, *of)
        script.say(f"{name}: {block.about}")
        blocks.compare(
            script, name, *block[1:], dtype=args.dtype, rounds=args.rounds, named=(name,)
        )
