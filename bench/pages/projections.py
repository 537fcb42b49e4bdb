"""The table of what projections cost in exactness, from the results of projection_exactness.py.

python bench projection_exactness --csv bench/results/h200_projection_exactness.csv
"""

from __future__ import annotations

from harness.page_part import Part, Rows, each, markdown, matching, on_gpu, one, spread

MEASURES = {
    "relative rms": "relative RMS distance from float32",
    "top-1 agreement": "tokens with float32's largest logit",
}


def table(rows: Rows) -> str:
    """Medians and quartiles in Markdown: a line per format and measure."""
    lines = []
    for kind, measure in each(rows, "format", "measure"):
        of_both = matching(rows, format=kind, measure=measure)
        sides = [one(of_both, side=side) for side in ("stock", "projections")]
        figures = [spread(row, ("median", "lower", "upper"), ".3g") for row in sides]
        ratio = spread(sides[1], ("over_stock", "ratio_lower", "ratio_upper"), ".3g")
        lines.append([kind, MEASURES[measure], *figures, ratio])
    heading = ("weights", "decode logits", "stock", "projections", "projections / stock")
    return _about(rows[0]) + markdown(heading, lines)


def _about(row: dict[str, str]) -> str:
    return (
        f"{on_gpu(row)}: {row['seeds']} llamas with "
        f"random weights, of {row['layers']} layers and hidden size {row['hidden']}, decode "
        f"{row['tokens']} tokens each after a prompt of {row['prompt']}. Their logits are compared "
        "with those of the same weights in float32. Medians and quartiles over the models; the "
        "ratio is taken for each model.\n\n"
    )


PARTS = [
    Part(
        "docs/norm_and_projection.md", "projection exactness", ("h200_projection_exactness",), table
    )
]
