"""The table of blocks of an image decoder, from image_blocks.py's results.

python bench image_blocks --blocks "decoder block,UNet block" --csv bench/results/h200_vae_block.csv
"""

from __future__ import annotations

from harness.page_part import Part, Rows, each, markdown, on_gpu, one, spread


def table(rows: Rows) -> str:
    """A line for each block and what is done with it."""
    lines = []
    for block, what, compiled in each(rows, "block", "what", "compiled"):
        of = {"block": block, "what": what, "compiled": compiled}
        stock, *ours = (one(rows, side=side, **of) for side in ("mflux", "replaced", "patched"))
        way = what + ", compiled" * (compiled == "True")
        gains = (spread(row, ("over", "over_lower", "over_upper"), ".2f") for row in ours)
        memory = (f"{float(row['peak_mb']):.0f}" for row in (stock, ours[0]))
        lines.append([block, way, f"{float(stock['ms']):.2f}", *gains, *memory])
    heading = ("block", "what", "mflux, ms", "mflux / replaced", "mflux / patched")
    heading += ("most MB: mflux", "replaced")
    about = (
        f"{on_gpu(rows[0])}, {rows[0]['dtype']}, the "
        "host's time of an evaluated call. What a block lacks here is unmeasured.\n\n"
    )
    return about + markdown(heading, lines)


PARTS = [
    Part(
        "docs/performance/group_norms_on_cuda.md",
        "an image decoder on CUDA",
        ("h200_vae_block",),
        table,
    )
]
