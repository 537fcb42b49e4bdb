"""The table of group, instance and batch norms on the CPU, from group_norm_cpu.py's results.

python bench group_norm_cpu --csv bench/results/cpu_group_norm.csv
"""

from __future__ import annotations

import statistics

from harness.page_part import Part, Rows, each, markdown, matching

NAMES = {
    "group": "`group_norm`",
    "group_pytorch": "`group_norm`, pytorch_compatible",
    "instance": "`instance_norm`",
    "batch_training": "`batch_norm`, training",
}
WAYS = {"forward": "forward", "input": "gradient of x", "all": "all gradients"}


def table(rows: Rows) -> str:
    """A line for each op and way: the median and the least ratio for each number of samples."""
    counts = each(rows, "samples")
    counts.sort(key=int)
    lines = []
    for op, way in each(rows, "op", "way"):
        of_way = matching(rows, op=op, way=way)
        cells = [_cell(matching(of_way, samples=samples)) for samples in counts]
        lines.append([NAMES[op], WAYS[way], *cells])
    named = (f"{int(count):,} sample{'s' * (count != '1')}" for count in counts)
    heading = ["op", "", *named]
    return _about(rows) + markdown(heading, lines)


def _ratios(rows: Rows) -> list[float]:
    return [float(row["mlx_over_ours"]) for row in rows]


def _cell(rows: Rows) -> str:
    ratios = _ratios(rows)
    return f"{statistics.median(ratios):.1f} ({min(ratios):.2f})" if ratios else ""


def _about(rows: Rows) -> str:
    first = rows[0]
    device = first["device"].removeprefix("cpu, ")
    lost = [row for row in rows if float(row["upper_quartile"]) < 1]
    worst = sorted(lost, key=lambda row: float(row["mlx_over_ours"]))
    named = ", ".join(
        f"{NAMES[row['op']]} {WAYS[row['way']]} {row['dtype']} "
        f"{row['samples']}×{row['positions']}×{row['channels']} "
        f"({float(row['mlx_over_ours']):.2f})"
        for row in worst[:5]
    )
    slower = f" {len(lost)} are slower, most of all {named}." if lost else " None is slower."
    return (
        f"{device}, {first['cores']} cores, {first['cpu_isa']}, MLX {first['mlx']}: how many times "
        "as long `mlx.nn`'s layers take (higher is better), the median and the least of samples of "
        f"1 to 10^6 elements, {len(rows)} calls in three dtypes.{slower}\n\n"
    )


PARTS = [
    Part("docs/performance/on_the_cpu.md", "group norms on the CPU", ("cpu_group_norm",), table)
]
