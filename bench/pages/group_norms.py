"""The table of group, instance and batch norms and norms over axis 1, from group_norm.py's results.

python bench group_norm --csv bench/results/h200_group_norm.csv
"""

from __future__ import annotations

from harness.beside_mlx import GAINS, LARGE, SLOWER, gains
from harness.images import HELD, OPS
from harness.page_part import Part, Rows, each, markdown, matching, on_gpu

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


def table(rows: Rows) -> str:
    """A line for each op, dtype and shape."""
    lines = []
    for op in OPS:
        for dtype, shape in each(matching(rows, op=op), "dtype", "shape"):
            of_shape = matching(rows, op=op, dtype=dtype, shape=shape)
            figures = []
            for way in ("False", "True"):
                row = matching(of_shape, backward=way)
                figures += [_shares(row[0]), *gains(row[0])] if row else [""] * 3
            lines.append([NAMES[op], dtype, shape.replace("x", "×"), *figures])
    way = ("of copy", "MLX / ours", "compiled / ours")
    heading = ("op", "dtype", "shape", *way, *(f"gradients: {name}" for name in way))
    return _about(rows) + markdown(heading, lines)


def _shares(row: dict[str, str]) -> str:
    """The share of a copy; and that if x is counted as read twice, where one read suffices.

    None of little, which may be in the cache.
    """
    share, reads = float(row["of_copy"] or "nan"), 1 + (row["backward"] == "True")
    moved = float(row["us"]) * share * float(row["copy_gbps"] or "nan") * 1e3
    if not moved >= LARGE:
        return ""
    if row["reads"] == "2" or row["op"] not in HELD:
        return f"{share:.0%}"
    return f"{share:.0%} ({share * (1 + 2 * reads) / (1 + reads):.0%})"


def _about(rows: Rows) -> str:
    slower = []
    for row in rows:
        alone = [float(row[f"alone_{name}"]) for name in GAINS if row[f"alone_{name}"]]
        if alone and min(alone) < SLOWER:
            way = "backward " if row["backward"] == "True" else ""
            shape = row["shape"].replace("x", "×")
            slower.append(f"{NAMES[row['op']]} {way}{shape} ({min(alone):.2f})")
    lost = f" Slower if a call is evaluated alone: {', '.join(slower)}." if slower else ""
    return (
        f"{on_gpu(rows[0])}, {rows[0]['groups']} "
        "groups, kernel time of independent calls beside MLX's layers, evaluated eagerly and by "
        "`mx.compile`; over axis 1, MLX's transposes, norm and copy. The share is of a copy of the "
        "bytes that are needed: of x (and of the cotangent) one read if a threadgroup can hold a "
        "group and those beside it in the same 32 bytes, else two, and one write. In parentheses: "
        "if two reads are counted there, too. "
        f"The compiled gradients compute again what they need of the forward.{lost}\n\n"
    )


PARTS = [
    Part(
        "docs/performance/group_norms_on_cuda.md",
        "group norms on CUDA",
        ("h200_group_norm",),
        table,
    )
]
