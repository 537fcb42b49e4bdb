"""The table of what projections cost in exactness, from the results of projection_exactness.py.

python bench/projection_exactness.py --csv bench/results/h200_projection_exactness.csv    measures
python bench/projection_table.py            prints the table
python bench/projection_table.py --check    exits with 1 if the page differs
python bench/projection_table.py --write    writes it into docs/norm_and_projection.md
"""

from __future__ import annotations

import sys
from pathlib import Path

from harness import page_part
from harness.page_part import Rows, each, matching, on_gpu, one, spread

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "norm_and_projection.md"
RESULTS = ROOT / "bench" / "results" / "h200_projection_exactness.csv"
BEGIN = "<!-- projection exactness: python bench/projection_table.py --write -->\n"
END = "<!-- end of projection exactness -->\n"

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
    return _about(rows[0]) + page_part.markdown(heading, lines)


def _about(row: dict[str, str]) -> str:
    return (
        f"{on_gpu(row)}: {row['seeds']} llamas with "
        f"random weights, of {row['layers']} layers and hidden size {row['hidden']}, decode "
        f"{row['tokens']} tokens each after a prompt of {row['prompt']}. Their logits are compared "
        "with those of the same weights in float32. Medians and quartiles over the models; the "
        "ratio is taken for each model.\n\n"
    )


def main() -> int:
    return page_part.main(__doc__, PAGE, (BEGIN, END), [RESULTS], table)


if __name__ == "__main__":
    sys.exit(main())
