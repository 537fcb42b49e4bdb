"""The pictures of README and docs, from bench/results; each for a light and a dark page.

python bench pictures            draws docs/pictures/NAME_light.svg and NAME_dark.svg
python bench pictures --check    exits with 1 if they show other figures
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple
from xml.sax.saxutils import escape

from harness.page_part import each, matching, one, stored
from pages.chains import LENGTHS

ROOT = Path(__file__).parents[1]
# Of text, of the grid, and of what is drawn: ours, others', what we lose, and no difference.
THEMES = {
    "light": ("#1f2328", "#d1d9e0", ("#0969da", "#bc4c00", "#8250df", "#6e7781")),
    "dark": ("#e6edf3", "#3d444d", ("#58a6ff", "#f0883e", "#bc8cff", "#8b949e")),
}
WIDTH = 5.0  # inches: 480 pixels, so that letters can be read at the 360 of a phone
TICKS = [16, 64, 256, 1024, 4096, 16384, 65536]
NORMS = {"rms": "rms norm", "layer": "layer norm", "add+rms": "residual add + rms norm"}
PROVIDERS = {"ours": "mlx_norms", "mx.fast": "mx.fast"}


class Bar(NamedTuple):
    """How many times as fast, with the ends around it if it has any."""

    label: str
    ratio: float
    lower: float | None
    upper: float | None

    @property
    def color(self) -> int:
        """Of what is faster, slower, or neither."""
        if self.lower is not None and self.lower <= 1 <= self.upper:
            return 3
        return 0 if self.ratio >= 1 else 1


def bar(label: str, row: dict[str, str]) -> Bar:
    ends = (float(row[key]) if row[key] else None for key in ("over_lower", "over_upper"))
    return Bar(label, round(float(row["over"]), 4), *ends)


# --- What the pictures show.


def speed() -> dict:
    """By norm: row lengths, and how many times as fast as mx.fast."""
    rows = matching(stored("h200_lengths"), section="lengths", dtype="bf16")

    def ratios(op: str) -> list[tuple[int, float]]:
        us = {
            side: {row["length"]: float(row["us"]) for row in matching(rows, op=op, side=side)}
            for side in PROVIDERS
        }
        return sorted(
            (int(length), round(us["mx.fast"][length] / ours, 2))
            for length, ours in us["ours"].items()
            if length in us["mx.fast"]
        )

    return {op: ratios(op) for op in NORMS}


def copy() -> dict:
    """By norm and provider: row lengths and the percentages of a copy's speed."""
    rows = matching(stored("h200_lengths"), section="lengths", dtype="bf16")
    return {
        op: {
            side: sorted(
                (int(row["length"]), round(100 * float(row["share"]), 1))
                for row in matching(rows, op=op, side=side)
            )
            for side in PROVIDERS
        }
        for op in NORMS
    }


def models() -> dict:
    """Whole models and blocks of packages: bars by what is run."""
    rows, pair = matching(stored("h200_model"), how="wall"), stored("h200_x2")
    phases = {"prefill": "prompt", "decode": "decode", "decode, 4 rows": "4 tokens at once"}
    rows = [row | {"what": phases[row["phase"]]} for row in rows if row["phase"] in phases]
    rows += [row | {"what": f"decode, {row['gpus']} GPUs"} for row in pair]
    found = {
        f"llama of 8B shapes, {title}": [
            bar(f"{row['format']}, {row['what']}", row) for row in matching(rows, side=side)
        ]
        for side, title in (("patched", "patch()"), ("projections", "with projections"))
    }
    blocks = matching(stored("h200_package_blocks"), side="patched")
    blocks += matching(stored("h200_vae_block"), side="patched")
    titles = {"forward": "blocks, forward, patch()"}
    titles["training step"] = "blocks, a training step, patch()"
    for what, title in titles.items():
        of = matching(blocks, what=what, compiled="False")
        found[title] = sorted((bar(row["block"], row) for row in of), key=lambda b: -b.ratio)
    return found


def chains() -> dict:
    rows = matching(stored("h200_chains"), backward="False")
    names = {
        "ada": "layer norm, scale, shift",
        "add_ada": "gated add, norm, scale, shift",
        "gated_rms": "rms norm, silu gate",
        "norm_add_norm": "norm, add, norm",
    }
    found = {}
    for side, title in (("eager", "over MLX's ops"), ("compiled", "over mx.compile")):
        found[title] = [
            bar(f"{names[op]}, {count}×{length}", one(of, rows=count, length=length, side=side))
            for op in names
            for of in [matching(rows, op=op)]
            for length in [LENGTHS[op]]
            for counts in [sorted(each(matching(of, length=length), "rows"), key=int)]
            for count in (counts[0], counts[-1])
        ]
    return found


def group_norms() -> dict:
    rows = matching(stored("h200_group_norm"), dtype="bfloat16", shape="4x128x128x320")
    names = {
        "group": "group",
        "group_pytorch": "group, PyTorch's order",
        "group_silu": "group, silu",
        "group_pytorch_silu": "group, PyTorch's, silu",
        "instance": "instance",
        "batch_training": "batch, training",
        "batch_inference": "batch, inference",
        "layer_axis1": "layer norm, axis 1",
        "rms_axis1": "rms norm, axis 1",
    }
    return {
        title: [
            bar(name, one(rows, op=op, side="eager", backward=way)) for op, name in names.items()
        ]
        for title, way in (("forward", "False"), ("gradients", "True"))
    }


def cpu() -> dict:
    rows = matching(stored("cpu_copy"), rows="512", length="4096", side="mx.fast")
    names = NORMS | {"rms vjp": "rms norm's gradients", "layer vjp": "layer norm's gradients"}
    names["add+rms"] = "add + rms norm"
    return {
        dtype: [bar(name, one(rows, op=op, dtype=dtype)) for op, name in names.items()]
        for dtype in ("float32", "bfloat16")
    }


# The launches of a layer of qwen3 as it decodes, in order: MLX's name, ours, and that with
# projections, of boxes that are one launch there.
LAYER = [
    ("add", "Add", "a", "a"),
    ("norm", "RMSNorm", "a", "a"),
    ("q", "Matmul", "q", "a"),
    ("k", "Matmul", "k", "a"),
    ("v", "Matmul", "v", "a"),
    ("norm of q", "RMSNorm", "r", "r"),
    ("norm of k", "RMSNorm", "r", "r"),
    ("rope of q", "RoPE", "r", "r"),
    ("rope of k", "RoPE", "r", "r"),
    ("cache of k", "SliceUpdate", "c", "c"),
    ("cache of v", "SliceUpdate", "d", "d"),
    ("attention", "ScaledDotProductAttention", "s", "s"),
    ("o", "Matmul", "o", "o"),
    ("add", "Add", "b", "b"),
    ("norm", "RMSNorm", "b", "b"),
    ("gate", "Matmul", "g", "b"),
    ("up", "Matmul", "u", "b"),
    ("swiglu", "Compiled", "w", "b"),
    ("down", "Matmul", "x", "x"),
]


def launches() -> dict:
    """How many launches each side has, and the boxes that are one launch."""
    rows = matching(stored("h200_launches"), model="qwen3")
    counts = {side: int(one(rows, side=side)["launches"]) for side in each(rows, "side")}
    names = re.findall(r"(\d+) (\w+)", one(rows, side="stock")["by_name"])
    drawn = [name for _, name, *_ in LAYER]
    for count, name in names:
        name = "Compiled" if name.startswith("Compiled") else name
        assert drawn.count(name) == int(count), f"{count} {name} in h200_launches.csv"
    return counts


def choose() -> dict:
    return {"drawn": 1}


# --- How they are drawn.


def _style(theme: str) -> dict:
    text, grid, _ = THEMES[theme]
    options = {"svg.fonttype": "none", "svg.hashsalt": "", "font.family": "sans-serif"}
    options |= {"text.color": text, "axes.labelcolor": text, "axes.edgecolor": grid}
    return options | {"xtick.color": text, "ytick.color": text, "font.size": 10}


def _lengths(axes, grid: str) -> None:
    axes.set_xscale("log", base=2)
    axes.set(xlabel="row length", facecolor="none")
    axes.set_xticks(TICKS, [str(length) for length in TICKS])
    axes.minorticks_off()
    axes.grid(color=grid, linewidth=0.6)
    axes.spines[["top", "right"]].set_visible(False)


def draw_speed(found: dict, figure, theme: str) -> None:
    text, grid, colors = THEMES[theme]
    figure.set_size_inches(WIDTH, 3.4)
    axes = figure.subplots()
    axes.axhline(1, color=text, linewidth=1, linestyle="--")
    for (op, points), color, marker in zip(found.items(), colors, "o^s", strict=False):
        axes.plot(*zip(*points, strict=True), color=color, marker=marker, markersize=4)
        axes.plot([], [], color=color, marker=marker, label=NORMS[op])
    axes.set_yscale("log")
    ticks = [0.5, 1, 2, 4, 8, 16, 32]
    axes.set_yticks(ticks, [f"{tick:g}" for tick in ticks])
    axes.set_ylabel("times as fast as mx.fast")
    _lengths(axes, grid)
    axes.legend(loc="upper right", frameon=False, labelcolor="linecolor")


def draw_copy(found: dict, figure, theme: str) -> None:
    text, grid, colors = THEMES[theme]
    figure.set_size_inches(WIDTH, 6.6)
    all_axes = figure.subplots(len(NORMS), 1, sharex=True)
    for op, axes in zip(found, all_axes, strict=True):
        axes.axhline(100, color=text, linewidth=1, linestyle="--")
        for name, color, marker in zip(PROVIDERS, colors, "os", strict=False):
            points = zip(*found[op][name], strict=True)
            axes.plot(*points, color=color, marker=marker, markersize=4, label=PROVIDERS[name])
        _lengths(axes, grid)
        axes.set(title=NORMS[op], ylim=(0, 108), ylabel="% of a copy", xlabel="")
    all_axes[0].legend(loc="lower right", frameon=False, labelcolor="linecolor")
    all_axes[-1].set_xlabel("row length")


def draw_bars(found: dict, figure, theme: str, log: bool = False) -> None:
    text, grid, colors = THEMES[theme]
    heights = [len(bars) for bars in found.values()]
    figure.set_size_inches(WIDTH, 0.21 * sum(heights) + 0.45 * len(found) + 0.3)
    all_axes = figure.subplots(
        len(found), 1, sharex=True, squeeze=False, gridspec_kw={"height_ratios": heights}
    )[:, 0]
    for (title, bars), axes in zip(found.items(), all_axes, strict=True):
        for at, each_bar in enumerate(bars):
            color = colors[each_bar.color]
            axes.barh(at, each_bar.ratio - (0 if log else 1), left=0 if log else 1, color=color)
            if each_bar.lower is not None:
                ends = [each_bar.lower, each_bar.upper]
                axes.plot(ends, [at, at], color=text, linewidth=1.2, marker="|", markersize=4)
            right = max(each_bar.ratio, each_bar.upper or 0, 1)
            axes.annotate(
                f"{each_bar.ratio:.2f}" if each_bar.ratio < 9.95 else f"{each_bar.ratio:.1f}",
                (right, at),
                xytext=(4, 0),
                textcoords="offset points",
                va="center",
                fontsize=9,
            )
        axes.set_yticks(range(len(bars)), [each_bar.label for each_bar in bars])
        axes.set(facecolor="none", ylim=(len(bars) - 0.4, -0.6))
        axes.set_title(title, loc="left", fontsize=10, fontweight="bold")
        axes.axvline(1, color=text, linewidth=1)
        axes.grid(color=grid, linewidth=0.6, axis="x")
        axes.set_axisbelow(True)
        axes.tick_params(length=0)
        axes.spines[["top", "right", "left", "bottom"]].set_visible(False)
        if log:
            axes.set_xscale("log")
            ticks = [1, 2, 5, 10, 20, 50]
            axes.set_xticks(ticks, [str(tick) for tick in ticks])
            axes.minorticks_off()
            axes.set_xlim(left=0.5)
    top = max(max(b.ratio, b.upper or 0) for bars in found.values() for b in bars)
    all_axes[-1].set_xlim(right=top * 1.5 if log else top + 0.12 * (top - 0.9))
    all_axes[-1].set_xlabel("times as fast as stock MLX")


class Svg:
    """Boxes and words."""

    def __init__(self, width: int, theme: str) -> None:
        self.width, self.bottom, self.lines = width, 0.0, []
        self.text, self.grid, self.colors = THEMES[theme]

    def box(self, x, y, width, height, words, color=None) -> None:
        """A box with lines of words in it; filled if it has a color."""
        stroke = color or self.grid
        fill = f'fill="{color}" fill-opacity="0.18"' if color else 'fill="none"'
        self.lines.append(
            f'<rect x="{x}" y="{y}" width="{width}" height="{height}" rx="5" {fill} '
            f'stroke="{stroke}" stroke-width="1.5"/>'
        )
        words = [words] if isinstance(words, str) else words
        first = y + height / 2 + 4.5 - 8 * (len(words) - 1)
        for at, line in enumerate(words):
            self.word(x + width / 2, first + 16 * at, line)
        self.bottom = max(self.bottom, y + height)

    def word(self, x, y, words, anchor="middle", bold=False, size=13) -> None:
        weight = ' font-weight="bold"' if bold else ""
        self.lines.append(
            f'<text x="{x}" y="{y}" text-anchor="{anchor}" font-size="{size}" '
            f'fill="{self.text}"{weight}>{escape(words)}</text>'
        )
        self.bottom = max(self.bottom, y + 4)

    def line(self, x, y, to_x, to_y) -> None:
        self.lines.append(
            f'<line x1="{x}" y1="{y}" x2="{to_x}" y2="{to_y}" stroke="{self.text}" '
            'stroke-width="1.2"/>'
        )

    def write(self, path: Path, found: dict) -> None:
        height = self.bottom + 6
        path.write_text(
            f'<svg xmlns="http://www.w3.org/2000/svg" width="{self.width}" height="{height:g}" '
            f'viewBox="0 0 {self.width} {height:g}" font-family="sans-serif">\n'
            '<metadata xmlns:dc="http://purl.org/dc/elements/1.1/"><dc:description>'
            f"{escape(json.dumps(found))}</dc:description></metadata>\n"
            + "\n".join(self.lines)
            + "\n</svg>\n"
        )


def draw_launches(found: dict, svg: Svg) -> None:
    """Three columns; boxes that one launch takes are one box."""
    titles = {"stock": "stock", "patched": "patch()", "projections": "with projections"}
    width, high, gap = 152, 22, 4
    for column, side in enumerate(titles):
        x = 4 + column * (width + 8)
        svg.word(x + width / 2, 16, f"{titles[side]}: {found[side]}", bold=True)
        groups: dict[object, list[int]] = {}
        for at, (_, _, *keys) in enumerate(LAYER):
            key = at if side == "stock" else keys[column - 1]
            groups.setdefault(key, []).append(at)
        assert len(groups) == found[side], side
        for members in groups.values():
            top, last = members[0], members[-1]
            names = [LAYER[at][0] for at in members]
            words = [", ".join(names[i : i + 2]) for i in range(0, len(names), 2)]
            height = (last - top) * (high + gap) + high
            y = 28 + top * (high + gap)
            # What became one launch is blue.
            color = svg.colors[0] if len(members) > 1 else None
            svg.box(x, y, width, height, words, color)


def draw_choose(found: dict, svg: Svg) -> None:
    """Questions down the left, what to do at the right."""
    steps = [
        (["Does it decode a few rows", "at a time, on a GPU?"], ["patch(", "projections=True)"]),
        (["Is it a package's model, or code", "that should stay as it is?"], ["patch()"]),
        (
            ["Does one function run again", "and again, as in training?"],
            ["patch(), then", "mx.compile"],
        ),
        (["Should one model change,", "and nothing else?"], ["nn.replace(model)"]),
        (
            ["Do you write a scale, a gate or", "an activation at the norm?"],
            ["the op: rms_norm,", "layer_norm, ..."],
        ),
    ]
    left, right, high, gap = 252, 160, 46, 22
    for at, (question, answer) in enumerate(steps):
        y = 6 + at * (high + gap)
        svg.box(4, y, left, high, question)
        svg.line(4 + left, y + high / 2, 480 - 4 - right, y + high / 2)
        svg.word((8 + left + 480 - 4 - right) / 2, y + high / 2 - 5, "yes", size=12)
        svg.box(480 - 4 - right, y, right, high, answer, svg.colors[0])
        svg.line(130, y + high, 130, y + high + gap)
        svg.word(138, y + high + gap / 2 + 4, "no", "start", size=12)
    svg.box(4, 6 + len(steps) * (high + gap), left, 30, "leave MLX as it is", svg.colors[3])


class Picture(NamedTuple):
    found: Callable[[], dict]
    draw: Callable
    plotted: bool = True


PICTURES = {
    "speed": Picture(speed, draw_speed),
    "copy": Picture(copy, draw_copy),
    "models": Picture(models, draw_bars),
    "chains": Picture(chains, draw_bars),
    "group_norms": Picture(group_norms, draw_bars),
    "cpu": Picture(cpu, lambda *of: draw_bars(*of, log=True)),
    "launches": Picture(launches, draw_launches, plotted=False),
    "choose": Picture(choose, draw_choose, plotted=False),
}


def path_of(name: str, theme: str) -> Path:
    return ROOT / "docs" / "pictures" / f"{name}_{theme}.svg"


def draw(name: str, theme: str) -> None:
    picture = PICTURES[name]
    found = picture.found()
    if not picture.plotted:
        svg = Svg(480, theme)
        picture.draw(found, svg)
        svg.write(path_of(name, theme), found)
        return
    import matplotlib
    from matplotlib.figure import Figure

    with matplotlib.rc_context(_style(theme)):
        figure = Figure(layout="constrained")
        picture.draw(found, figure, theme)
        about = {"Date": None, "Description": json.dumps(found)}
        figure.savefig(path_of(name, theme), transparent=True, metadata=about)


def shown(name: str, theme: str) -> object:
    """The figures that a picture stores in its description."""
    import xml.etree.ElementTree as xml

    tree = xml.parse(path_of(name, theme))
    (description,) = tree.iter("{http://purl.org/dc/elements/1.1/}description")
    return json.loads(description.text)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python bench pictures", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(PICTURES)}")
    parser.add_argument("--check", action="store_true", help="compare the figures, draw nothing")
    args = parser.parse_args(sys.argv[2:])
    if unknown := set(args.names) - PICTURES.keys():
        parser.error(f"no picture {', '.join(sorted(unknown))}")
    for name in args.names or PICTURES:
        for theme in THEMES:
            if not args.check:
                draw(name, theme)
            elif shown(name, theme) != json.loads(json.dumps(PICTURES[name].found())):
                print(f"{path_of(name, theme).name} does not show what is in bench/results.")
                return 1
    return 0
