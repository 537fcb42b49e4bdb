"""The tables of models and matmuls on CUDA.

python bench model --formats bf16,4-bit --csv bench/results/h200_model.csv
python bench model --formats 4-bit --kernels --csv bench/results/h200_model_kernels.csv
python bench tensor_parallel --csv bench/results/h200_x2.csv
python bench gemv --all-dtypes --csv bench/results/h200_gemv.csv
python tools counts.launches --csv bench/results/h200_launches.csv
python bench package_blocks --csv bench/results/h200_package_blocks.csv
"""

from __future__ import annotations

from collections.abc import Iterator

from harness.page_part import Part, Rows, around, ends, matching, number, on_gpu, table

from .vae import way

SIDES = {"`patch()`": "patched", "with projections": "projections"}
NEAR = 0.97  # this share of MLX's speed, or more, counts as equally fast


def tables(model: Rows, kernels: Rows, pair: Rows, gemv: Rows, launches: Rows, blocks: Rows) -> str:
    parts = [
        f"A llama of {model[0]['layers']} layers with the shapes of an 8B model, prompt of "
        f"{model[0]['prompt']}, one GPU; then sharded over {pair[0]['gpus']} GPUs by NCCL, which "
        "is slower here than one. Stock's time over each, round by round "
        f"({ends(model)} on one GPU):\n",
        of_models(model, pair),
        *steps(model + kernels),
        "Launches per layer when decoding one token (jamba: two, of Mamba and attention):\n",
        table(
            launches,
            {"model": "model"},
            {name: _launches(side) for name, side in ({"stock": "stock"} | SIDES).items()},
        ),
        of_gemv(matching(gemv, side="mlx")),
        f"Blocks of packages, unchanged, at full width with random weights, {blocks[0]['dtype']}, "
        f"on {on_gpu(blocks[0])}: the host's time of an evaluated call, stock's over each. "
        "Launches and the most memory are stock's and those of `patch()`. What is not here is "
        "unmeasured:\n",
        of_blocks(blocks),
    ]
    return "\n".join(parts)


def _launches(side: str):
    return lambda rows: matching(rows, side=side)[0]["launches"]


def of_models(model: Rows, pair: Rows) -> str:
    shards = [row | {"phase": f"decode, {row['gpus']} GPUs"} for row in pair]
    cells = {"stock, ms": number("us", ".2f", 1e-3, side="stock")}
    cells |= {name: around("over", ".3f", side=side) for name, side in SIDES.items()}
    keys = {"weights": "format", "phase": "phase"}
    return table(matching(model, how="wall") + shards, keys, cells)


def steps(rows: Rows) -> Iterator[str]:
    """What steps cost the host and the device, where it was measured."""
    measured = {(row["format"], row["phase"], row["side"]) for row in matching(rows, how="host")}
    shown = [row for row in rows if (row["format"], row["phase"], row["side"]) in measured]
    if shown:
        yield (
            "A decode step, of one token or of several of one sequence: the time that the host's "
            "thread needs to build and encode it, by its CPU's clock, and that in which kernels "
            "run, by CUPTI. The host limits where its time is not well below the kernels':\n"
        )
        cells = {
            "ms": number("us", ".2f", 1e-3, how="wall"),
            "tokens/s": lambda of: f"{1e6 * int(of[0]['rows']) / float(of[0]['us']):.0f}",
            "host, µs": number("us", ".0f", how="host"),
            "kernels, µs": number("us", ".0f", how="kernels"),
            "launches": number("kernels", ".0f", how="kernels"),
        }
        yield table(shown, {"weights": "format", "tokens": "rows", "side": "side"}, cells)


def of_blocks(rows: Rows) -> str:
    rows = [row | {"way": way([row]), "of": f"{row['block']}, {row['source']}"} for row in rows]
    both = ("stock", "patched")

    def pair(column: str):
        cells = [number(column, ".0f", side=side) for side in both]
        return lambda of: ", ".join(cell(of) for cell in cells)

    cells = {"stock, ms": number("us", ".2f", 1e-3, side="stock")}
    cells |= {name: around("over", ".2f", side=side) for name, side in SIDES.items()}
    cells |= {"launches": pair("launches"), "most MB": pair("peak_mb")}
    return table(rows, {"block": "of", "what": "way"}, cells)


def of_gemv(rows: Rows) -> str:
    ratios = [float(row["over"]) for row in rows]
    lost = [row for row in rows if float(row["over"]) < NEAR]
    names = ", ".join(
        f"{row['dtype']} {row['outputs']}×{row['depth']} by {row['stored']} with {row['rows']} row"
        f"{'s' if row['rows'] != '1' else ''} ({float(row['over']):.2f})"
        for row in lost
    )
    return (
        f'`matmul(a, b, kernel="gemv")` against `mx.matmul`, {len(rows)} products of 1 to 8 rows: '
        f"{len(rows) - len(lost)} take at most {1 / NEAR - 1:.0%} longer, and the fastest is "
        f"{max(ratios):.2f} times as fast. Slower: {names}.\n"
    )


FILES = ("h200_model", "h200_model_kernels", "h200_x2", "h200_gemv", "h200_launches")
PARTS = [
    Part(
        "docs/performance/models_on_cuda.md",
        "models on CUDA",
        (*FILES, "h200_package_blocks"),
        tables,
    )
]
