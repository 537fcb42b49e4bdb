"""The table of what projections cost in exactness.

python bench projection_exactness --csv bench/results/h200_projection_exactness.csv
"""

from __future__ import annotations

from harness.page_part import Part, Rows, ends, number, on_gpu, table

MEASURES = {
    "relative rms": "relative RMS distance from float32",
    "top-1 agreement": "tokens with float32's largest logit",
}


def _around(columns: tuple[str, ...], side: str):
    cells = [number(column, ".3g", side=side) for column in columns]
    return lambda rows: "{} ({} to {})".format(*(cell(rows) for cell in cells))


def exactness(rows: Rows) -> str:
    """A line per format and measure."""
    cells = {s: _around(("median", "lower", "upper"), s) for s in ("stock", "projections")}
    ratio = ("over_stock", "ratio_lower", "ratio_upper")
    cells["projections / stock"] = _around(ratio, "projections")
    keys = {"weights": "format", "decode logits": lambda of: MEASURES[of[0]["measure"]]}
    rows = [row | {"decode logits": row["measure"]} for row in rows]
    return _about(rows) + table(rows, keys, cells)


def _about(rows: Rows) -> str:
    row = rows[0]
    return (
        f"{on_gpu(row)}: {row['seeds']} llamas with "
        f"random weights, of {row['layers']} layers and hidden size {row['hidden']}, decode "
        f"{row['tokens']} tokens each after a prompt of {row['prompt']}. Their logits are compared "
        f"with those of the same weights in float32. Medians and {ends(rows)} over the models; the "
        "ratio is taken for each model.\n\n"
    )


PARTS = [
    Part(
        "docs/norm_and_projection.md",
        "projection exactness",
        ("h200_projection_exactness",),
        exactness,
    )
]
