"""The tables of the norms on CUDA, from stored measurements.

The figures come from gpu_speed.py (h200_lengths.csv, h200_speed.csv), gpu_calls.py
(h200_calls.csv) and outputs_at_once.py (h200_outputs.csv).
"""

from __future__ import annotations

from collections.abc import Iterator

from harness.page_part import Part, Rows, each, markdown, matching, on_gpu, one, spread

SLOW = 1.1  # configs that take more than this many times a peer's time through mx.eval are listed


def tables(lengths: Rows, speed: Rows, calls: Rows, outputs: Rows) -> str:
    about = speed[0]
    parts = [
        f"{on_gpu(about)}, driver {about['driver']}. "
        f"A copy moves {float(about['copy_gbps']):.0f} GB/s.\n",
        "Kernel time of independent calls, as a share of the copy's speed, `mx.fast`'s in "
        "parentheses, 64 Mi elements:\n",
        markdown(length_heading(lengths), length_lines(lengths, "lengths")),
        "Their gradients, of every input (`mx.fast`'s of layer norm is "
        "[wrong](../mlx_layer_norm_gradient.md) where a row is no multiple of 16 bytes):\n",
        markdown(length_heading(lengths), length_lines(lengths, "lengths_backward")),
        "The same at large shapes, forward and backward:\n",
        markdown(["op", "dtype", *shapes_of(speed)], speed_lines(speed)),
        "A call through `mx.eval` on one row of 4096, µs (quartiles):\n",
        markdown(["op", "dtype", "ours", "`mx.fast`"], call_lines(calls)),
        slower_calls(calls),
        outputs_at_once(outputs),
    ]
    return "\n".join(parts)


def shares(rows: Rows, /, **config: str) -> str:
    ours = one(rows, provider="ours", **config)
    fast = matching(rows, provider="mx.fast", **config)
    share = f"{float(fast[0]['of_copy']):.0%}" if fast else "wrong"
    return f"{float(ours['of_copy']):.0%} ({share})"


def length_heading(rows: Rows) -> list[str]:
    return ["row length", *(f"{op} {dtype}" for op, dtype in each(rows, "op", "dtype"))]


def length_lines(rows: Rows, section: str) -> Iterator[list[str]]:
    rows = matching(rows, section=section)
    columns = each(rows, "op", "dtype")
    for length in each(rows, "length"):
        yield [length, *(shares(rows, op=op, dtype=of, length=length) for op, of in columns)]


def shapes_of(rows: Rows) -> list[str]:
    return ["×".join(shape) for shape in each(rows, "rows", "length")]


def speed_lines(rows: Rows) -> Iterator[list[str]]:
    for section, op, dtype in each(rows, "section", "op", "dtype"):
        columns = []
        for shape in shapes_of(rows):
            config = dict(section=section, op=op, dtype=dtype)
            config |= dict(zip(("rows", "length"), shape.split("×"), strict=True))
            columns.append(shares(rows, **config) if matching(rows, **config) else "")
        yield [op + (", backward" if section == "backward" else ""), dtype, *columns]


def call_lines(rows: Rows) -> Iterator[list[str]]:
    rows = matching(rows, section="calls, one row")
    for op, dtype in each(rows, "op", "dtype"):
        found = [one(rows, op=op, dtype=dtype, provider=c) for c in ("ours", "mx.fast")]
        yield [op, dtype, *(spread(row, ("us", "us_lower", "us_upper"), ".2f") for row in found)]


def slower_calls(rows: Rows) -> str:
    lost = [row for row in rows if float(row["over_best_peer"] or 0) > SLOW]
    over = ("over_best_peer", "over_lower", "over_upper")
    names = ", ".join(
        f"{row['op']} {row['dtype']} {row['rows']}×{row['length']} {spread(row, over, '.2f')}"
        for row in lost
    )
    return (
        f"Of all {len(matching(rows, provider='ours'))} configs measured so, up to 32768 rows of "
        f"128 to 16384 elements, these take more than {SLOW} times as long as `mx.fast`: {names}.\n"
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
