"""The tables of group, instance and batch norms and norms over axis 1.

python bench group_norm --csv bench/results/h200_group_norm.csv
python bench group_norm_cpu --csv bench/results/cpu_group_norm.csv
"""

from __future__ import annotations

import statistics

from harness.beside_mlx import LARGE
from harness.images import HELD, OPS
from harness.page_part import Part, Rows, each, matching, on_gpu, table

from .chains import GAINS, WAYS, lost_alone

NAMES = {
    "group": "`group_norm`",
    "group_pytorch": "`group_norm`, pytorch_compatible",
    "group_silu": "`group_norm`, silu",
    "group_pytorch_silu": "`group_norm`, pytorch_compatible, silu",
    "instance": "`instance_norm`",
    "batch_training": "`batch_norm`, training",
    "batch_inference": "`batch_norm`, inference",
    "layer_axis1": "`layer_norm`, axis 1",
    "rms_axis1": "`rms_norm`, axis 1",
}
SHAPE, DTYPE = "4x128x128x320", "bfloat16"
ON_THE_CPU = {"forward": "forward", "input": "gradient of x", "all": "all gradients"}


def on_cuda(rows: Rows) -> str:
    """A line for each op, of one shape in one dtype, and the range of all."""
    about, every = _about(rows), _range(rows)
    rows = sorted(rows, key=lambda row: OPS.index(row["op"]))
    shape = SHAPE if SHAPE in each(rows, "shape") else rows[0]["shape"]
    dtype = DTYPE if DTYPE in each(rows, "dtype") else rows[0]["dtype"]
    rows = matching(rows, shape=shape, dtype=dtype)
    keys = {
        "op": lambda of: NAMES[of[0]["op"]],
        "dtype": "dtype",
        "shape": lambda of: of[0]["shape"].replace("x", "×"),
    }
    cells = {}
    for way, backward in WAYS.items():
        cells[f"{way}of copy"] = lambda of, backward=backward: _shares(of, backward)
        cells |= {
            name: cell for name, cell in GAINS.items() if name.startswith("grad") == bool(way)
        }
    return about + table(rows, keys, cells) + every


def _range(rows: Rows) -> str:
    """The least and the largest ratio of all that is stored, and what is slower."""
    said = []
    for way, name in (("False", "forward"), ("True", "gradients")):
        over = [float(row["over"]) for row in rows if row["over"] and row["backward"] == way]
        if over:
            said.append(f"{name} {min(over):.2f} to {max(over):.1f}, {len(over)} figures")
    lost = [
        f"{NAMES[row['op']]} {row['shape'].replace('x', '×')}, {row['side']} ({row['over'][:4]})"
        for row in rows
        if row["over"] and float(row["over"]) < 1
    ]
    slower = f" Slower: {', '.join(lost)}." if lost else ""
    return f"\nOver ours of all shapes and dtypes: {'; '.join(said)}.{slower}\n"


def _shares(rows: Rows, backward: str) -> str:
    """The share of a copy; and that if x is counted as read twice, where one read suffices.

    None of little, which may be in the cache.
    """
    found = matching(rows, side="ours", backward=backward)
    if not found or not found[0]["share"] or float(found[0]["moved"]) < LARGE:
        return ""
    share, reads = float(found[0]["share"]), 1 + (backward == "True")
    if found[0]["reads"] == "2" or found[0]["op"] not in HELD:
        return f"{share:.0%}"
    return f"{share:.0%} ({share * (1 + 2 * reads) / (1 + reads):.0%})"


def _about(rows: Rows) -> str:
    lost = lost_alone(
        rows,
        lambda row: (
            f"{NAMES[row['op']]} {'backward ' * (row['backward'] == 'True')}"
            f"{row['shape'].replace('x', '×')}"
        ),
    )
    return (
        f"{on_gpu(rows[0])}, {rows[0]['groups']} "
        "groups, kernel time of independent calls beside MLX's layers, evaluated eagerly and by "
        "`mx.compile`; over axis 1, MLX's transposes, norm and copy. The share is of a copy of the "
        "bytes that are needed: of x (and of the cotangent) one read if a threadgroup can hold a "
        "group and those beside it in the same 32 bytes, else two, and one write. In parentheses: "
        "if two reads are counted there, too. "
        f"The compiled gradients compute again what they need of the forward.{lost}\n\n"
    )


def on_the_cpu(rows: Rows) -> str:
    """The range of medians, and the least of all."""
    rows = matching(rows, side="mlx")
    medians = [
        statistics.median(float(row["over"]) for row in matching(rows, op=op, way=way, samples=n))
        for op, way, n in each(rows, "op", "way", "samples")
    ]
    least = min(rows, key=lambda row: float(row["over"]))
    return (
        f"{_about_cpu(rows)} The medians by op and size are {min(medians):.1f} to "
        f"{max(medians):.1f}; the least of all is {float(least['over']):.2f}, of "
        f"{NAMES[least['op']]}, {ON_THE_CPU[least['way']]}, {least['dtype']}.\n"
    )


def _about_cpu(rows: Rows) -> str:
    first = rows[0]
    lost = [row for row in rows if float(row["over_upper"]) < 1]
    named = ", ".join(
        f"{NAMES[row['op']]} {ON_THE_CPU[row['way']]} {row['dtype']} "
        f"{row['samples']}×{row['positions']}×{row['channels']} ({float(row['over']):.2f})"
        for row in sorted(lost, key=lambda row: float(row["over"]))[:5]
    )
    slower = f" {len(lost)} are slower, most of all {named}." if lost else " None is slower."
    return (
        f"{first['device'].removeprefix('cpu, ')}, {first['cores']} cores, {first['cpu_isa']}, "
        f"MLX {first['mlx']}: how many times as long `mlx.nn`'s layers take (higher is better), "
        f"of samples of 1 to 10^6 elements, {len(rows)} calls in three dtypes.{slower}"
    )


PARTS = [
    Part(
        "docs/performance/group_norms_on_cuda.md",
        "group norms on CUDA",
        ("h200_group_norm",),
        on_cuda,
    ),
    Part(
        "docs/performance/on_the_cpu.md", "group norms on the CPU", ("cpu_group_norm",), on_the_cpu
    ),
]
