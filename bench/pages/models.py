"""The tables of models and matmuls on CUDA, from stored measurements.

The figures come from gpu_model.py (h200_model.csv), tensor_parallel.py (h200_x2.csv), gemv.py
(h200_gemv.csv), tools/counts/launches.py (h200_launches.csv) and package_blocks.py
(h200_package_blocks.csv).
"""

from __future__ import annotations

from collections.abc import Iterator

from harness.page_part import Part, Rows, each, markdown, matching, on_gpu, one, spread

SIDES = ("stock", "patched", "projections")
OVER = ("stock_over_side", "ratio_lower", "ratio_upper")
NEAR = 0.97  # this share of MLX's speed, or more, counts as equally fast


def tables(model: Rows, pair: Rows, gemv: Rows, launches: Rows, blocks: Rows) -> str:
    sides = ("`patch()`", "with projections")
    parts = [
        f"A llama of {model[0]['layers']} layers with the shapes of an 8B model, prompt of "
        f"{model[0]['prompt']}, one GPU; then sharded over {pair[0]['gpus']} GPUs by NCCL, which "
        "is slower here than one. Stock's time over each, round by round (quartiles on one GPU):\n",
        markdown(
            ("weights", "phase", "stock, ms", *sides), [*model_lines(model), *pair_lines(pair)]
        ),
        *step_text(model),
        "Launches per layer when decoding one token (jamba: two, of Mamba and attention):\n",
        markdown(("model", "stock", *sides), launch_lines(launches)),
        gemv_text(gemv),
        f"Blocks of packages, unchanged, at full width with random weights, {blocks[0]['dtype']}, "
        f"on {on_gpu(blocks[0])}: the host's time of an evaluated call, stock's over each. "
        "Launches and the most memory are stock's and those of `patch()`. What is not here is "
        "unmeasured:\n",
        markdown(
            ("block", "what", "stock, ms", *sides, "launches", "most MB"), block_lines(blocks)
        ),
    ]
    return "\n".join(parts)


def model_lines(rows: Rows) -> Iterator[list[str]]:
    for weights, phase in each(rows, "format", "phase"):
        stock, *sides = (one(rows, format=weights, phase=phase, side=side) for side in SIDES)
        ratios = (spread(row, OVER, ".3f") for row in sides)
        yield [weights, phase, f"{float(stock['ms']):.2f}", *ratios]


def step_text(rows: Rows) -> Iterator[str]:
    """What steps cost the host and the device, where it was measured."""
    measured = [row for row in rows if row.get("host_us")]
    if measured:
        yield (
            "A decode step, of one token or of several of one sequence: the time that the host's "
            "thread needs to build and encode it, by its CPU's clock, and that in which kernels "
            "run, by CUPTI. The host limits where its time is not well below the kernels':\n"
        )
        heading = ("weights", "tokens", "side", "ms", "tokens/s", "host, µs", "kernels, µs")
        yield markdown((*heading, "launches"), map(step_line, measured))


def step_line(row: dict[str, str]) -> list[str]:
    figures = [f"{float(row['ms']):.2f}", f"{float(row['tokens_a_second']):.0f}"]
    costs = (row[name] for name in ("host_us", "kernels_us", "kernels_a_step"))
    figures += [f"{float(cost):.0f}" if cost else "" for cost in costs]
    return [row["format"], row["rows"], row["side"], *figures]


def pair_lines(rows: Rows) -> Iterator[list[str]]:
    for weights in each(rows, "format"):
        stock, *sides = (one(rows, format=weights, side=side) for side in SIDES)
        ratios = (f"{float(row['stock_over_side']):.3f}" for row in sides)
        yield [weights, f"decode, {stock['gpus']} GPUs", f"{float(stock['ms']):.2f}", *ratios]


def launch_lines(rows: Rows) -> Iterator[list[str]]:
    for model in each(rows, "model"):
        yield [model, *(one(rows, model=model, side=side)["launches"] for side in SIDES)]


def block_lines(rows: Rows) -> Iterator[list[str]]:
    for block, what, compiled in each(rows, "block", "what", "compiled"):
        of = matching(rows, block=block, what=what, compiled=compiled)
        sides = {row["side"]: row for row in of}
        stock, patched = sides["stock"], sides["patched"]
        ratios = (spread(sides[s], OVER, ".2f") if s in sides else "" for s in SIDES[1:])
        figures = [f"{float(stock['ms']):.2f}", *ratios]
        figures.append(f"{stock['launches']}, {patched['launches']}")
        figures.append(", ".join(f"{float(row['peak_mb']):.0f}" for row in (stock, patched)))
        way = what + ", compiled" * (compiled == "True")
        yield [f"{block}, {stock['source']}", way, *figures]


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


PARTS = [
    Part(
        "docs/performance/models_on_cuda.md",
        "models on CUDA",
        ("h200_model", "h200_x2", "h200_gemv", "h200_launches", "h200_package_blocks"),
        tables,
    )
]
