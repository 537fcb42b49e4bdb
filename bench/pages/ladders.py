"""The tables of the two ladders on a GPU in docs/ladders.md, from what the bench measured there.

python bench ladder --csv bench/results/h200_ladder.csv
"""

from __future__ import annotations

from harness.page_part import Part, Rows, markdown, on_gpu
from mlx_norms import ladders

NOISE = 1.02  # two runs of the same rung differ by less
# The number of shapes of each ladder, the largest ones. A smaller layer norm is done before memory
# for its result is found, so its calls would measure that.
SHAPES = {"layer": 1, "sgemm": 2}


def tables(rows: Rows) -> str:
    """Both ladders in Markdown, each at its largest shapes."""
    parts = [_about(rows[0])]
    for op, ladder in (("layer", ladders.LAYER_NORM), ("sgemm", ladders.SGEMM)):
        of_op = [row for row in rows if row["op"] == op and row["dtype"] == "float32"]
        if not of_op:
            raise SystemExit(f"h200_ladder.csv has no rows of {op} in float32.")
        parts.append(_table(of_op, ladder))
    return "\n".join(parts)


def _about(row: dict[str, str]) -> str:
    return (
        f"{on_gpu(row)}, float32, the device's time of "
        f"independent calls (medians); a copy moves {float(row['limit']):.0f} GB/s, and MLX's "
        'own matmul is the peak. "x" is the time of the rung before over this one\'s, and "calls" '
        "how many a sample has, which run at once as far as they find room: one call of naive "
        "takes as long as many. On CUDA, tile_simdgroup's 8×8 matrices are shuffles, not the "
        "matrix unit.\n"
    )


def _table(rows: Rows, ladder: tuple[ladders.Rung, ...]) -> str:
    products = rows[0]["op"] == "sgemm"
    shapes = sorted({(int(row["rows"]), int(row["length"])) for row in rows})
    shapes = shapes[-SHAPES[rows[0]["op"]] :]
    found = {(row["side"], int(row["rows"])): row for row in rows}
    last = {"mlx": "MLX's own"} if products else {"mx.fast": "`mx.fast`"}
    fixes = {rung.name: rung.fixes for rung in ladder}
    heading = ["rung"]
    for count, length in shapes:
        unit, share = ("GFLOP/s", "of peak") if products else ("µs", "of copy")
        heading += [f"{count}×{length}: {unit}", share, "x", "calls"]
    lines = []
    for name in [*fixes, *last]:
        cells = []
        for count, _ in shapes:
            cells += _cells(found, name, _before(list(fixes), name), count, products)
        lines.append([last.get(name, name), *cells, fixes.get(name, "")])
    table = markdown([*heading, "what it fixes"], lines)
    return table + _losers(found, list(fixes), shapes)


def _losers(found: dict, rungs: list[str], shapes: list[tuple[int, int]]) -> str:
    """The rungs that are slower than the one before them at the largest shape."""
    us = {name: float(found[name, shapes[-1][0]]["us"]) for name in rungs}
    slower = [b for a, b in zip(rungs, rungs[1:], strict=False) if us[b] > NOISE * us[a]]
    return f"\nSlower than the rung before on this GPU: {', '.join(slower)}.\n" if slower else ""


def _before(rungs: list[str], name: str) -> str | None:
    index = rungs.index(name) if name in rungs else 0
    return rungs[index - 1] if index else None


def _cells(found: dict, name: str, before: str | None, count: int, products: bool) -> list[str]:
    if (row := found.get((name, count))) is None:
        return ["", "", "", ""]
    rate = float(row["moved"]) / float(row["us"]) / 1e3
    value, share = rate if products else row["us"], row["share"]
    previous = found.get((before, count))
    ratio = f"{float(previous['us']) / float(row['us']):.2f}" if previous else ""
    digits = f"{float(value):.0f}" if float(value) >= 1000 else f"{float(value):.4g}"
    return [digits, f"{float(share):.1%}", ratio, row["calls"]]


PARTS = [Part("docs/ladders.md", "ladders on a GPU", ("h200_ladder",), tables)]
