"""The README's plot of the share of a copy's speed over row length, from gpu_speed.py's results.

python bench gpu_speed --only lengths --csv bench/results/h200_lengths.csv    measures, on a GPU
python bench length_plot            draws docs/speed_light.svg and docs/speed_dark.svg
python bench length_plot --check    exits with 1 if they show other figures
"""

from __future__ import annotations

import argparse
import csv
import json
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "bench" / "results" / "h200_lengths.csv"
OPS = {"layer": "layer norm", "add+rms": "residual add + rms norm"}
PROVIDERS = {"ours": "mlx_norms", "mx.fast": "mx.fast"}
TICKS = [16, 64, 256, 1024, 4096, 16384, 65536]
# For GitHub's two themes: the colors of text, of the grid and of each provider.
THEMES = {
    "light": ("#1f2328", "#d1d9e0", ("#0969da", "#bc4c00")),
    "dark": ("#e6edf3", "#3d444d", ("#58a6ff", "#f0883e")),
}


def series(rows: list[dict[str, str]]) -> dict[str, dict[str, list[tuple[int, float]]]]:
    """By op and provider: row lengths and the percentages of a copy's speed."""
    return {
        op: {
            name: sorted(
                (int(row["length"]), round(100 * float(row["share"]), 1))
                for row in rows
                if row["section"] == "lengths"
                and (row["op"], row["dtype"], row["side"]) == (op, "bf16", name)
            )
            for name in PROVIDERS
        }
        for op in OPS
    }


def path_of(theme: str) -> Path:
    return ROOT / "docs" / f"speed_{theme}.svg"


def draw(rows: list[dict[str, str]], theme: str) -> None:
    import matplotlib
    from matplotlib.figure import Figure

    text, grid, colors = THEMES[theme]
    options = {"svg.fonttype": "none", "svg.hashsalt": "", "font.family": "sans-serif"}
    options |= {"text.color": text, "axes.labelcolor": text, "axes.edgecolor": grid}
    options |= {"xtick.color": text, "ytick.color": text, "font.size": 11}
    with matplotlib.rc_context(options):
        figure = Figure(figsize=(8, 3.4), layout="constrained")
        found = series(rows)
        for op, axes in zip(OPS, figure.subplots(1, len(OPS), sharey=True), strict=True):
            axes.axhline(100, color=text, linewidth=1, linestyle="--")
            for name, color, marker in zip(PROVIDERS, colors, "os", strict=True):
                lengths, shares = zip(*found[op][name], strict=True)
                label = PROVIDERS[name]
                axes.plot(lengths, shares, color=color, marker=marker, markersize=5, label=label)
            axes.legend(loc="lower right", frameon=False, labelcolor="linecolor")
            axes.set_xscale("log", base=2)
            axes.set(title=OPS[op], xlabel="row length", ylim=(0, 108), facecolor="none")
            axes.set_xticks(TICKS, [str(length) for length in TICKS])
            axes.minorticks_off()
            axes.grid(color=grid, linewidth=0.6)
            axes.spines[["top", "right"]].set_visible(False)
        figure.axes[0].set_ylabel("% of the speed of a copy")
        figure.savefig(
            path_of(theme),
            transparent=True,
            metadata={"Date": None, "Description": json.dumps(found)},
        )


def shown(theme: str) -> object:
    """The figures that a plot stores in its description."""
    import xml.etree.ElementTree as xml

    (description,) = xml.parse(path_of(theme)).iter("{http://purl.org/dc/elements/1.1/}description")
    return json.loads(description.text)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python bench length_plot", description=__doc__)
    parser.add_argument("--check", action="store_true", help="compare the figures, draw nothing")
    args = parser.parse_args(sys.argv[2:])
    with RESULTS.open(newline="") as file:
        rows = list(csv.DictReader(file))
    for theme in THEMES:
        if not args.check:
            draw(rows, theme)
        elif shown(theme) != json.loads(json.dumps(series(rows))):
            print(f"{path_of(theme).name} does not show what {RESULTS.name} has.")
            return 1
    return 0
