"""The tables of docs/performance.md on CUDA, from stored measurements.

python bench/gpu_tables.py            prints the tables
python bench/gpu_tables.py --check    exits with 1 if the page has others
python bench/gpu_tables.py --write    writes them into the page

The figures come from gpu_speed.py (h200_lengths.csv, h200_speed.csv, h200_calls.csv),
outputs_at_once.py (h200_outputs.csv), gpu_model.py (h200_model.csv), tensor_parallel.py
(h200_x2.csv), gemv.py (h200_gemv.csv) and tools/counts/launches.py (h200_launches.csv).
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

from gains import Rows, matching, one

from mlx_norms._bench import page_part

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "performance.md"
NAMES = ("lengths", "speed", "calls", "outputs", "model", "x2", "gemv", "launches")
RESULTS = [ROOT / "bench" / "results" / f"h200_{name}.csv" for name in NAMES]
BEGIN = "<!-- CUDA: python bench/gpu_tables.py --write -->\n"
END = "<!-- end of CUDA -->\n"
SLOW = 1.1  # times a peer's time through mx.eval, and more, is listed
NEAR = 0.97  # of MLX's speed and more counts as as fast


def tables(
    lengths: Rows,
    speed: Rows,
    calls: Rows,
    outputs: Rows,
    model: Rows,
    pair: Rows,
    gemv: Rows,
    launches: Rows,
) -> str:
    about = speed[0]
    parts = [
        f"{about['device'].removeprefix('gpu, ')}, MLX {about['mlx']}, driver {about['driver']}. "
        f"A copy moves {float(about['copy_gbps']):.0f} GB/s.\n",
        "Kernel time of independent calls, as a share of the copy's speed, `mx.fast`'s in "
        "parentheses, bfloat16, 64 Mi elements:\n",
        markdown(["row length", *ops_of(lengths)], length_lines(lengths)),
        "The same at large shapes, forward and backward:\n",
        markdown(["op", "dtype", *shapes_of(speed)], speed_lines(speed)),
        "A call through `mx.eval` on one row of 4096, µs (quartiles):\n",
        markdown(["op", "dtype", "ours", "`mx.fast`"], call_lines(calls)),
        slower_calls(calls),
        outputs_at_once(outputs),
        f"A llama of {model[0]['layers']} layers with the shapes of an 8B model, prompt of "
        f"{model[0]['prompt']}, one GPU; then sharded over {pair[0]['gpus']} GPUs by NCCL, which "
        "is slower here than one. Stock's time over each, round by round (quartiles on one GPU):\n",
        markdown(
            ["weights", "phase", "stock, ms", "`patch()`", "with projections"],
            [*model_lines(model), *pair_lines(pair)],
        ),
        "Launches per layer when decoding one token:\n",
        markdown(["model", "stock", "`patch()`", "with projections"], launch_lines(launches)),
        gemv_text(gemv),
    ]
    return "\n".join(parts)


def markdown(heading: Iterable[str], lines: Iterable[Iterable[str]]) -> str:
    heading = list(heading)
    return page_part.markdown([heading, ["---"] * len(heading), *lines])


def ops_of(rows: Rows) -> list[str]:
    return list(dict.fromkeys(row["op"] for row in rows))


def shares(rows: Rows, /, **cell: str) -> str:
    ours, fast = (one(rows, contestant=name, **cell) for name in ("ours", "mx.fast"))
    return f"{float(ours['of_copy']):.0%} ({float(fast['of_copy']):.0%})"


def length_lines(rows: Rows) -> Iterator[list[str]]:
    for length in dict.fromkeys(row["length"] for row in rows):
        yield [length, *(shares(rows, op=op, length=length) for op in ops_of(rows))]


def shapes_of(rows: Rows) -> list[str]:
    return list(dict.fromkeys(f"{row['rows']}×{row['length']}" for row in rows))


def speed_lines(rows: Rows) -> Iterator[list[str]]:
    for section, op, dtype in dict.fromkeys((r["section"], r["op"], r["dtype"]) for r in rows):
        cells = []
        for shape in shapes_of(rows):
            cell = dict(section=section, op=op, dtype=dtype)
            cell |= dict(zip(("rows", "length"), shape.split("×"), strict=True))
            cells.append(shares(rows, **cell) if matching(rows, **cell) else "")
        yield [op + (", backward" if section == "backward" else ""), dtype, *cells]


def call_lines(rows: Rows) -> Iterator[list[str]]:
    rows = matching(rows, section="calls, one row")
    for op, dtype in dict.fromkeys((row["op"], row["dtype"]) for row in rows):
        found = [one(rows, op=op, dtype=dtype, contestant=c) for c in ("ours", "mx.fast")]
        yield [op, dtype, *(spread(row, "us", "us_lower", "us_upper", 2) for row in found)]


def slower_calls(rows: Rows) -> str:
    lost = [row for row in rows if float(row["over_best_peer"] or 0) > SLOW]
    names = ", ".join(
        f"{row['op']} {row['dtype']} {row['rows']}×{row['length']} "
        f"{spread(row, 'over_best_peer', 'over_lower', 'over_upper', 2)}"
        for row in lost
    )
    return (
        f"Of all {len(matching(rows, contestant='ours'))} cells measured so, up to 32768 rows of "
        f"128 to 16384 elements, these take more than {SLOW} times as long as `mx.fast`: {names}.\n"
    )


def outputs_at_once(rows: Rows) -> str:
    rows = matching(rows, rows="512", length="8192")
    few, many = list(dict.fromkeys(row["calls"] for row in rows))[-2:]

    def times(calls: str) -> tuple[str, ...]:
        found = (
            one(rows, calls=calls, side=side) for side in ("ours", "add, mx.fast", "add alone")
        )
        return tuple(f"{float(row['us']):.1f}" for row in found)

    ours, stock, add = times(few)
    more_ours, more_stock, more_add = times(many)
    gigabytes = float(one(rows, calls=many, side="ours")["output_gb"])
    return (
        f"At 512×8192 it is the memory: with {few} calls in an eval add + rms norm takes {ours} "
        f"µs, MLX's two ops {stock} and its sum alone {add}; with {many}, whose outputs take "
        f"{gigabytes:.0f} GB, {more_ours}, {more_stock} and {more_add}. Why MLX's two ops escape "
        "what its own sum does not is not known.\n"
    )


def spread(row: dict[str, str], median: str, lower: str, upper: str, places: int) -> str:
    found = [f"{float(row[name]):.{places}f}" for name in (median, lower, upper)]
    return f"{found[0]} ({found[1]} to {found[2]})"


def model_lines(rows: Rows) -> Iterator[list[str]]:
    for weights, phase in dict.fromkeys((row["format"], row["phase"]) for row in rows):
        sides = [
            one(rows, format=weights, phase=phase, side=side) for side in ("patched", "projections")
        ]
        stock = one(rows, format=weights, phase=phase, side="stock")
        ratios = (spread(row, "stock_over_side", "ratio_lower", "ratio_upper", 3) for row in sides)
        yield [weights, phase, f"{float(stock['ms']):.2f}", *ratios]


def pair_lines(rows: Rows) -> Iterator[list[str]]:
    for weights in dict.fromkeys(row["format"] for row in rows):
        stock, *sides = (
            one(rows, format=weights, side=side) for side in ("stock", "patched", "projections")
        )
        ratios = (f"{float(row['stock_over_side']):.3f}" for row in sides)
        yield [weights, f"decode, {stock['gpus']} GPUs", f"{float(stock['ms']):.2f}", *ratios]


def launch_lines(rows: Rows) -> Iterator[list[str]]:
    sides = ("stock", "patched", "projections")
    for model in dict.fromkeys(row["model"] for row in rows):
        yield [model, *(one(rows, model=model, side=side)["launches"] for side in sides)]


def gemv_text(rows: Rows) -> str:
    ratios = [float(row["mlx_over_ours"]) for row in rows]
    lost = [row for row in rows if float(row["mlx_over_ours"]) < NEAR]
    names = ", ".join(
        f"{row['dtype']} {row['outputs']}×{row['depth']} by {row['stored']} with {row['rows']} row"
        f"{'s' if row['rows'] != '1' else ''} ({float(row['mlx_over_ours']):.2f})"
        for row in lost
    )
    return (
        f'`matmul(a, b, kernel="gemv")` against `mx.matmul`, {len(rows)} products of 1 to 8 rows: '
        f"{len(rows) - len(lost)} take at most {1 / NEAR - 1:.0%} longer, and the fastest is "
        f"{max(ratios):.2f} times as fast. Slower: {names}.\n"
    )


def main() -> int:
    return page_part.main(__doc__, PAGE, (BEGIN, END), RESULTS, tables)


if __name__ == "__main__":
    sys.exit(main())
