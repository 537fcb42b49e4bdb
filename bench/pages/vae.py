"""The table of blocks of an image decoder.

python bench image_blocks --csv bench/results/h200_vae_block.csv
"""

from __future__ import annotations

from harness.page_part import Part, Rows, around, number, on_gpu, table


def way(rows: Rows) -> str:
    return rows[0]["what"] + ", compiled" * (rows[0]["compiled"] == "True")


def blocks(rows: Rows) -> str:
    """A line for each block and what is done with it."""
    rows = [row | {"way": way([row])} for row in rows if row["block"] != "transformer"]
    cells = {"mflux, ms": number("us", ".2f", 1e-3, side="mflux")}
    for side in ("replaced", "patched"):
        cells[f"mflux / {side}"] = around("over", ".2f", side=side)
    cells["most MB: mflux"] = number("peak_mb", ".0f", side="mflux")
    cells["replaced"] = number("peak_mb", ".0f", side="replaced")
    about = (
        f"{on_gpu(rows[0])}, {rows[0]['dtype']}, the "
        "host's time of an evaluated call. What a block lacks here is unmeasured.\n\n"
    )
    return about + table(rows, {"block": "block", "what": "way"}, cells)


PARTS = [
    Part(
        "docs/performance/group_norms_on_cuda.md",
        "an image decoder on CUDA",
        ("h200_vae_block",),
        blocks,
    )
]
