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

from harness.page_part import Part, Rows, around, each, ends, matching, number, on_gpu, table

from .vae import way

SIDES = {"`patch()`": "patched", "with projections": "projections"}
NEAR = 0.97  # this share of MLX's speed, or more, counts as equally fast


def tables(model: Rows, kernels: Rows, pair: Rows, gemv: Rows, launches: Rows, blocks: Rows) -> str:
    one_token = matching(model + kernels, rows="1")
    parts = [
        f"{on_gpu(model[0])}: a llama of {model[0]['layers']} layers with the shapes of an 8B "
        f"model and random weights, prompt of {model[0]['prompt']}, one GPU; then sharded over "
        f"{pair[0]['gpus']} GPUs by NCCL, which is slower here than one. Stock's time over each, "
        f"round by round ({ends(model)} on one GPU):\n",
        of_models(model, pair),
        *steps(one_token),
        of_launches(launches),
        of_blocks(blocks),
        of_gemv(matching(gemv, side="mlx")),
    ]
    return "\n".join(parts)


def of_launches(rows: Rows) -> str:
    """A sentence of how many there are on each side."""
    counts = [
        f"{model} {', '.join(row['launches'] for row in matching(rows, model=model))}"
        for model in each(rows, "model")
    ]
    return (
        "Launches of a layer that decodes one token: stock, `patch()`, with projections (jamba: "
        f"two layers, of Mamba and attention): {'; '.join(counts)}.\n"
    )


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
    """A sentence of the least and the largest ratio of each way."""
    patched = [row | {"way": way([row])} for row in matching(rows, side="patched")]
    said = []
    for name in each(patched, "way"):
        of = sorted(matching(patched, way=name), key=lambda row: float(row["over"]))
        said.append(
            f"{name} {float(of[0]['over']):.2f} ({of[0]['block']}) to "
            f"{float(of[-1]['over']):.2f} ({of[-1]['block']})"
        )
    sources = ", ".join(each(rows, "source"))
    return (
        f"{len(each(rows, 'block'))} blocks of packages ({sources}), unchanged, at full width with "
        f"random weights, {rows[0]['dtype']}, {on_gpu(rows[0])}, the host's time of an evaluated "
        f"call; stock's over that of `patch()`: {'; '.join(said)}.\n"
    )


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
