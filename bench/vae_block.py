"""Times blocks of an image decoder as mflux has them against the same with our group norms.

The blocks are of FLUX's autoencoder, at full width and with random weights: one of the decoder,
with three residual blocks and an upsampling, and the UNet's middle one, with attention. Our norms
are in them by mlx_norms.nn.replace and by mlx_norms.patch(). Forward, and a training step: the loss
with the gradients of all weights and the input. All sides run eagerly and under mx.compile, in
turn; the time is the host's for an evaluated call, with quartiles, and the memory the most that was
taken in a call. "error" is the distance of the outputs from those in float32, relative to their
size, and for a step that of the gradients.

It needs mflux, without what mflux needs: pip install --no-deps mflux. --device cpu tries the script
with a tiny image.
"""

from __future__ import annotations

import sys

from harness import blocks, vae
from harness.configs import DTYPES
from harness.script import Script

SIDE = {"decoder block": 256, "UNet block": 64}  # of an image of 512 pixels
TINY = 4


def main() -> int:
    script = Script(__doc__, ["block", *blocks.COLUMNS], rounds=9)
    add = script.parser.add_argument
    add("--dtype", default="bfloat16", help="of " + ", ".join(DTYPES))
    add("--blocks", default=",".join(vae.BLOCKS), help="of %(default)s")
    args = script.begin()
    for name in args.blocks.split(","):
        side, dtype = TINY if script.tiny else SIDE[name], DTYPES[args.dtype]
        of_sides = vae.sides(name, dtype)
        exact, source = vae.build(name, DTYPES["float32"])
        script.say(f"{source}, {name}, {side}x{side}")
        blocks.compare(
            script,
            f"{name} of FLUX's autoencoder",
            {side: blocks.forward(*of) for side, of in of_sides.items()},
            blocks.forward(vae.called, exact),
            [of_sides["mflux"][1].parameters(), vae.image(name, side, dtype)],
            inputs=1,
            dtype=args.dtype,
            rounds=args.rounds,
            named=(name,),
        )
    return 0


if __name__ == "__main__":
    sys.exit(main())
