"""The README's table of what a patch changes in outputs of 16 bits.

python bench logits --layers 6 --seeds 3 --csv bench/results/cpu_logits.csv
"""

from __future__ import annotations

from collections.abc import Iterator

from harness.page_part import Part, Rows, each, markdown, matching, one

NAMES = {"llama": "llama", "qwen3": "qwen3", "gemma3_text": "gemma 3", "olmo2": "olmo 2"}
BIT_EQUAL, UNMEASURED = "none: equal bits", "unmeasured"


def table(logits: Rows, model: Rows, exactness: Rows, blocks: Rows) -> str:
    heading = (
        "model, bf16",
        "where",
        "from float32: stock, ours",
        "largest change of a logit",
        "other token",
    )
    row = logits[0]
    cpu = row["device"].removeprefix("cpu, ")
    about = (
        f"The CPU's ({cpu}, MLX {row['mlx']}): real widths, {row['layers']} layers, random "
        f"weights, medians of {row['seeds']} models, "
        f"{int(row['prompt']) + int(row['tokens'])} positions. "
        "Largest change: over stock's largest logit. Other token: where the most likely one is not "
        "stock's; random weights are a hard case. Blocks have no logits. "
    )
    unfused = [
        f"{NAMES[row['family']]} {float(row['median']):.1%}"
        for row in matching(logits, side="unfused", measure="largest")
    ]
    about += f"With `fuse=False` the largest change is: {', '.join(unfused)}.\n"
    lines = [*of_logits(logits), *on_gpu(model, exactness), *of_blocks(blocks)]
    return markdown(heading, lines) + "\n" + about


def of_logits(rows: Rows) -> Iterator[tuple[str, ...]]:
    """A line for each family."""
    for family in each(rows, "family"):
        of = matching(rows, family=family)
        found = {
            (row["side"], row["measure"]): float(row["median"])
            for row in of
            if row["side"] in ("stock", "patched")
        }
        theirs, ours = (found[side, "from float32"] for side in ("stock", "patched"))
        largest, other = (found["patched", name] for name in ("largest", "other token"))
        name = f"{NAMES[family]}, {of[0]['hidden']} wide"
        change = f"{largest:.1%}" if largest else BIT_EQUAL
        yield name, "CPU, `patch()`", f"{theirs:.4f}, {ours:.4f}", change, f"{other:.1%}"


def on_gpu(model: Rows, exactness: Rows) -> Iterator[tuple[str, ...]]:
    """The llamas that were measured on a GPU."""
    decoding = matching(model, how="wall", phase="decode", format="bf16")
    for side, title in (("patched", "`patch()`"), ("projections", "with projections")):
        row = one(decoding, side=side)
        differs = row["logits"] != "bit-equal"
        change = f"{float(row['largest_difference']):.1%}" if differs else BIT_EQUAL
        distances = UNMEASURED if differs else "the same"
        if side == "projections":
            of = matching(exactness, format="bf16", measure="relative rms")
            theirs, ours = (float(one(of, side=s)["median"]) for s in ("stock", side))
            distances = f"{theirs:.4f}, {ours:.4f} (2048 wide)"
        yield (
            "llama, 4096 wide",
            f"H200, {title}",
            distances,
            change,
            UNMEASURED if differs else "0.0%",
        )


def of_blocks(rows: Rows) -> Iterator[tuple[str, ...]]:
    """The blocks of packages as a range of ratios."""
    found = []
    for block in each(rows, "block"):
        for compiled in ("False", "True"):
            of = matching(rows, block=block, what="forward", compiled=compiled)
            theirs, ours = (float(one(of, side=side)["error"]) for side in ("stock", "patched"))
            found.append((ours / theirs, block, compiled, theirs, ours))
    for which, pick in (("nearest", min), ("farthest", max)):
        _, block, compiled, theirs, ours = pick(found)
        name = f"{block}, a block" + ", compiled" * (compiled == "True")
        where = f"H200, `patch()`; {which} of {len(found)}"
        yield name, where, f"{theirs:.4f}, {ours:.4f}", "-", "-"


PARTS = [
    Part(
        "README.md",
        "changes",
        ("cpu_logits", "h200_model", "h200_projection_exactness", "h200_package_blocks"),
        table,
    )
]
