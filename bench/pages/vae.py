"""The table of blocks of an image decoder.

python bench image_blocks --csv bench/results/h200_vae_block.csv
"""

from __future__ import annotations

from harness.page_part import Part, Rows, around, each, matching, on_gpu


def way(rows: Rows) -> str:
    return rows[0]["what"] + ", compiled" * (rows[0]["compiled"] == "True")


def blocks(rows: Rows) -> str:
    """A sentence for each block."""
    rows = [row | {"way": way([row])} for row in rows if row["block"] != "transformer"]
    over = around("over", ".2f", side="patched")
    said = []
    for block in each(rows, "block"):
        of = matching(rows, block=block)
        ways = ", ".join(f"{name} {over(matching(of, way=name))}" for name in each(of, "way"))
        most = [max(matching(of, side=side), key=_most)["peak_mb"] for side in ("mflux", "patched")]
        said.append(
            f"{block}: {ways}. Most memory: {float(most[0]):.0f} MB, and {float(most[1]):.0f}.\n"
        )
    about = (
        f"{on_gpu(rows[0])}, {rows[0]['dtype']}, the host's time of an evaluated call, mflux's "
        "over that of `patch()`.\n"
    )
    return "\n".join([about, *said])


def _most(row: dict[str, str]) -> float:
    return float(row["peak_mb"])


PARTS = [
    Part(
        "docs/performance/group_norms_on_cuda.md",
        "an image decoder on CUDA",
        ("h200_vae_block",),
        blocks,
    )
]
