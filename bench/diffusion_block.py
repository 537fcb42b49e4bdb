"""Times a block of a diffusion transformer as mflux has it against the same block with our norms.

The block is Qwen-Image's, at full width and with random weights, for an image of 4096 tokens and a
text of 256. Forward, and a training step: the loss with the gradients of all weights and inputs.
Both sides run eagerly and under mx.compile, in turn; the time is the host's for an evaluated call,
with quartiles, and the memory the most that was taken in a call. "error" is the distance of the
outputs from those of the float32 weights, relative to their size, and for a step that of the
gradients.

It needs mflux, without what mflux needs: pip install --no-deps mflux. --device cpu tries the script
at a tiny width.
"""

from __future__ import annotations

import sys

from harness import blocks, diffusion
from harness.configs import DTYPES
from harness.script import Script

SIDES = {"mflux": diffusion.stock, "ours": diffusion.ours}


def main() -> int:
    script = Script(__doc__, blocks.COLUMNS, rounds=9)
    script.parser.add_argument("--dtype", default="bfloat16", help="of " + ", ".join(DTYPES))
    args = script.begin()
    sizes = diffusion.TINY if script.tiny else diffusion.Sizes()
    block, source = diffusion.build(sizes, DTYPES[args.dtype])
    script.say(f"{source}, {sizes}")
    blocks.compare(
        script,
        "a block of Qwen-Image's transformer",
        {name: blocks.forward(side, block) for name, side in SIDES.items()},
        blocks.forward(diffusion.stock, block),
        [block.parameters(), *diffusion.inputs(sizes, DTYPES[args.dtype])],
        inputs=2,
        dtype=args.dtype,
        rounds=args.rounds,
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
