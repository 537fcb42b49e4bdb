"""The tables of the norms on the CPU.

python bench cpu_copy --peers mx.fast,torch --csv bench/results/cpu_copy.csv
python bench cpu_copy --default-malloc --csv bench/results/cpu_copy_default_malloc.csv
python bench cpu_copy --only images --csv bench/results/cpu_copy_images.csv
python bench cpu_copy --only around --csv bench/results/cpu_copy_around.csv
"""

from __future__ import annotations

from harness.page_part import Cell, Part, Rows, each, matching, table

KEYS = {"op": "op", "dtype": "dtype"}
ROWS = "512"  # of 4096


def norms(rows: Rows, default_malloc: Rows, images: Rows, around: Rows) -> str:
    of_images = by_op(
        images,
        "group, instance and batch norms of 4×64×64×320 and their gradients against `mlx.nn`'s "
        "layers, which MLX's ops compute",
    )
    of_chains = by_op(
        around,
        "what models write around a norm, at 4×1024×3072, and its gradients, against MLX's eager "
        "chain of ops",
    )
    return f"{by_shape(rows, default_malloc)}\n{slower(rows)}\n{of_images}\n{of_chains}"


def slower(rows: Rows) -> str:
    """What a peer computes faster, of all shapes."""
    lost = [
        f"{row['op']} {row['dtype']} {row['rows']}×{row['length']} than {row['side']} "
        f"({float(row['over']):.2f})"
        for row in rows
        if row["side"] not in ("ours", "copy") and float(row["over"]) < 1
    ]
    return f"Slower: {', '.join(lost) or 'none'}.\n"


def ratio(side: str, form: str | None, /, *ends: str, **values: str) -> Cell:
    """Our time over a copy's, or a peer's over ours, with its ends in parentheses if asked for."""

    def cell(rows: Rows) -> str:
        found = matching(rows, side=side, **values)
        if not found:
            return ""
        # The copy's time over ours is what is stored: its ends trade places.
        columns = ends if side != "copy" else [ends[0], *reversed(ends[1:])]
        figures = [float(found[0][column]) for column in columns]
        figures = [1 / each for each in figures] if side == "copy" else figures
        texts = [format(each, form or (".0f" if each >= 10 else ".2f")) for each in figures]
        return texts[0] if len(texts) == 1 else "{} ({} to {})".format(*texts)

    return cell


def by_op(rows: Rows, about: str) -> str:
    """The ranges of both ratios by dtype, in a sentence."""
    said = []
    for dtype in each(rows, "dtype"):
        of = matching(rows, dtype=dtype)
        copies = [1 / float(row["over"]) for row in matching(of, side="copy")]
        peers = [float(row["over"]) for row in matching(of, side="mx.fast")]
        said.append(
            f"{dtype} {min(peers):.1f} to {max(peers):.0f} times as fast, {min(copies):.2f} to "
            f"{max(copies):.2f} times as long as a copy"
        )
    return f"{_machine(rows[0])}: {about}: {'; '.join(said)}.\n"


def by_shape(rows: Rows, default_malloc: Rows) -> str:
    """Medians: a line per op and dtype, columns per shape."""
    more = [row | {"side": "default"} for row in matching(default_malloc, side="copy")]
    rows = [row for row in rows if not row["op"].endswith("vjp") and row["rows"] == ROWS]
    more = [row for row in more if row["rows"] == ROWS and not row["op"].endswith("vjp")]
    rows = rows + [row | {"over": f"{1 / float(row['over']):.7g}"} for row in more]
    others = {"default malloc": "default", "`mx.fast`": "mx.fast", "torch": "torch"}
    cells = []
    for count, length in each(rows, "rows", "length"):
        sides = {f"{count}×{length}: over a copy": "copy"} | others
        shape = dict(rows=count, length=length)
        cells += [(name, ratio(side, None, "over", **shape)) for name, side in sides.items()]
    return _about(rows[0]) + table(rows, KEYS, cells)


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


PARTS = [
    Part(
        "docs/performance/on_the_cpu.md",
        "norms on the CPU",
        ("cpu_copy", "cpu_copy_default_malloc", "cpu_copy_images", "cpu_copy_around"),
        norms,
    )
]
