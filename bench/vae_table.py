"""The table of blocks of an image decoder, from vae_block.py's results.

python bench/vae_block.py --csv bench/results/h200_vae_block.csv    measures
python bench/vae_table.py            prints the table
python bench/vae_table.py --check    exits with 1 if the page differs
python bench/vae_table.py --write    writes it into docs/performance/group_norms_on_cuda.md
"""

from __future__ import annotations

import sys
from pathlib import Path

from harness import page_part
from harness.page_part import Rows, each, markdown, on_gpu, one, spread

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "performance" / "group_norms_on_cuda.md"
RESULTS = ROOT / "bench" / "results" / "h200_vae_block.csv"
BEGIN = "<!-- an image decoder on CUDA: python bench/vae_table.py --write -->\n"
END = "<!-- end of an image decoder on CUDA -->\n"


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


def main() -> int:
    return page_part.main(__doc__, PAGE, (BEGIN, END), [RESULTS], table)


if __name__ == "__main__":
    sys.exit(main())
