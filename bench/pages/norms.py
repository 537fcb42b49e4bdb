"""The tables of the norms on CUDA, from stored measurements.

python bench gpu_speed --only lengths --csv bench/results/h200_lengths.csv
python bench gpu_speed --csv bench/results/h200_speed.csv
python bench gpu_calls --csv bench/results/h200_calls.csv
python bench outputs_at_once --csv bench/results/h200_outputs.csv
"""

from __future__ import annotations

from harness.page_part import Cell, Part, Rows, around, each, matching, on_gpu, one, table

# Powers of two, widths of models, and what is slow.
LENGTHS = ("64", "101", "256", "768", "1792", "4096", "4097", "8192", "16384", "65536")
SLOW = 1.1  # configs that take more than this many times a peer's time through mx.eval are listed


def tables(lengths: Rows, speed: Rows, calls: Rows, outputs: Rows) -> str:
    about = speed[0]
    parts = [
        f"{on_gpu(about)}, driver {about['driver']}. "
        f"A copy moves {float(about['limit']):.0f} GB/s.\n",
        "Kernel time of independent calls in bfloat16, as a share of the copy's speed, `mx.fast`'s "
        "in parentheses, 64 Mi elements; the gradients are of every input (`mx.fast`'s of layer "
        "norm is [wrong](../mlx_layer_norm_gradient.md) where a row is no multiple of 16 bytes):\n",
        by_length(lengths),
        one_row(matching(calls, section="calls, one row", dtype="bf16")),
        slower_calls(calls),
        outputs_at_once(outputs),
    ]
    return "\n".join(parts)


def shares(**config: str) -> Cell:
    """Ours, with mx.fast's in parentheses."""

    def cell(rows: Rows) -> str:
        if not (of := matching(rows, **config)):
            return ""
        ours, fast = one(of, side="ours"), matching(of, side="mx.fast")
        share = f"{float(fast[0]['share']):.0%}" if fast else "wrong"
        return f"{float(ours['share']):.0%} ({share})"

    return cell


def by_length(rows: Rows) -> str:
    rows = [row for row in rows if row["dtype"] == "bf16" and row["length"] in LENGTHS]
    cells = {
        f"{op}{title}": shares(op=op, section=section)
        for section, title in (("lengths", ""), ("lengths_backward", ", gradients"))
        for op in each(rows, "op")
    }
    return table(rows, {"row length": "length"}, cells)


def one_row(rows: Rows) -> str:
    us = {
        op: [f"{float(row['us']):.2f}" for row in matching(rows, op=op)] for op in each(rows, "op")
    }
    said = ", ".join(f"{op} {' and '.join(those)}" for op, those in us.items())
    return f"A call through `mx.eval` on one row of 4096, µs, ours and `mx.fast`'s: {said}.\n"


def slower_calls(rows: Rows) -> str:
    lost = [row for row in rows if row["over"] and float(row["over"]) < 1 / SLOW]
    over = around("over", ".2f")
    names = ", ".join(
        f"{row['op']} {row['dtype']} {row['rows']}×{row['length']} {over([row])}" for row in lost
    )
    return (
        f"Of all {len(matching(rows, side='ours'))} configs measured so, up to 32768 rows of "
        f"128 to 16384 elements, these take more than {SLOW} times as long as `mx.fast`, whose "
        f"time over ours is: {names}.\n"
    )


def outputs_at_once(rows: Rows) -> str:
    rows = matching(rows, rows="512", length="8192")
    few, many = each(rows, "calls")[-2:]

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


PARTS = [
    Part(
        "docs/performance/norms_on_cuda.md",
        "norms on CUDA",
        ("h200_lengths", "h200_speed", "h200_calls", "h200_outputs"),
        tables,
    )
]
