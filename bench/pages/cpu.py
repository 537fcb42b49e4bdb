"""The tables of the norms on the CPU, from what cpu_copy.py measured.

python bench cpu_copy --csv bench/results/cpu_copy.csv
python bench cpu_copy --default-malloc --csv bench/results/cpu_copy_default_malloc.csv
python bench cpu_copy --only images --csv bench/results/cpu_copy_images.csv
python bench cpu_copy --only around --csv bench/results/cpu_copy_around.csv
"""

from __future__ import annotations

from harness.page_part import Part, Rows, each, markdown, matching, one, spread


def tables(
    rows: Rows,
    default_malloc: Rows,
    images: Rows,
    around: Rows,
) -> str:
    of_images = by_op(
        images,
        "the same of 4×64×64×320 against `mlx.nn`'s layers, which MLX's ops compute. Group norms "
        "have 32 groups, in MLX's order and in PyTorch's. What must be read twice counts twice "
        "among the bytes that are copied.",
        "`mlx.nn`",
    )
    of_chains = by_op(
        around,
        "what models write around a norm, at 4×1024×3072, against MLX's eager chain of ops; over "
        "`axis=1` there are 3072 channels. Modulated and summed rows have a scale, shift or factor "
        "per sample.",
        "MLX's chain",
    )
    return f"{table(rows, default_malloc)}\n{of_images}\n{of_chains}"


def by_op(rows: Rows, about: str, peer: str) -> str:
    """Medians with quartiles in Markdown, below what they are: a line per op and dtype."""
    lines = []
    for op, dtype in each(rows, "op", "dtype"):
        of_op = matching(rows, op=op, dtype=dtype)
        figures = ("median", "lower_quartile", "upper_quartile")
        cells = [
            spread(one(of_op, ratio=ratio), figures, form)
            for ratio, form in (("ours/copy", ".2f"), ("mx.fast/ours", ".1f"))
        ]
        lines.append([op, dtype, *cells])
    heading = ["op", "dtype", "over a copy", peer]
    return f"{_machine(rows[0])}: {about}\n\n{markdown(heading, lines)}"


def table(rows: Rows, default_malloc: Rows) -> str:
    """Medians in Markdown: a line per op and dtype, columns per shape."""
    found = {(key(row), row["ratio"]): row["median"] for row in rows}
    found |= {(key(row), "default malloc"): row["median"] for row in default_malloc if ours(row)}
    columns = {
        "over a copy": "ours/copy",
        "default malloc": "default malloc",
        "`mx.fast`": "mx.fast/ours",
        "torch": "torch/ours",
    }
    shapes = list(dict.fromkeys(key(row)[2:] for row in rows))
    heading = ["op", "dtype"]
    for count, length in shapes:
        first, *others = columns
        heading += [f"{count}×{length}: {first}", *others]
    lines = []
    for op, dtype in dict.fromkeys(key(row)[:2] for row in rows):
        cells = [
            _text(found.get(((op, dtype, *shape), ratio)))
            for shape in shapes
            for ratio in columns.values()
        ]
        lines.append([op, dtype, *cells])
    return _about(rows[0]) + markdown(heading, lines)


def key(row: dict[str, str]) -> tuple[str, ...]:
    return row["op"], row["dtype"], row["rows"], row["length"]


def ours(row: dict[str, str]) -> bool:
    return row["ratio"] == "ours/copy"


def _machine(row: dict[str, str]) -> str:
    device = row["device"].removeprefix("cpu, ")
    return f"{device}, {row['cores']} cores, {row['cpu_isa']}, MLX {row['mlx']}"


def _about(row: dict[str, str]) -> str:
    return (
        f"{_machine(row)}, torch {row['torch']}: our time over that of a copy of the same bytes "
        "on two threads (lower is better), with malloc told to keep its pages and at its defaults; "
        "and how many times as long `mx.fast` and torch's layer norm on two threads take (higher "
        "is better). Medians.\n\n"
    )


def _text(ratio: str | None) -> str:
    if ratio is None:
        return ""
    return f"{float(ratio):.0f}" if float(ratio) >= 10 else f"{float(ratio):.2f}"


PARTS = [
    Part(
        "docs/performance/on_the_cpu.md",
        "norms on the CPU",
        ("cpu_copy", "cpu_copy_default_malloc", "cpu_copy_images", "cpu_copy_around"),
        tables,
    )
]
