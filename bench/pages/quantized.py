"""The table of quantized products on CUDA, from the results of quantized.py.

python bench quantized --csv bench/results/h200_quantized.csv
python bench quantized --dtypes float16 --csv bench/results/h200_quantized_float16.csv
"""

from __future__ import annotations

from harness.page_part import Part, Rows, each, markdown, matching, on_gpu, one

SHOWN = ("1", "4", "8", "16")  # rows
FEW = 8  # rows, which share the matrix units' work


def table(rows: Rows, float16: Rows) -> str:
    """A line for each matrix and number of rows in SHOWN, and the range of another dtype."""
    lines = []
    for bits, outputs, depth in each(rows, "bits", "outputs", "depth"):
        of_matrix = matching(rows, bits=bits, outputs=outputs, depth=depth)
        for number in SHOWN:
            row = one(of_matrix, rows=number)
            alone = _figures(row, "us", "mlx_us", "mlx_over_ours")
            together = _figures(row, "together_us", "mlx_together_us", "together_over")
            lines.append([bits, f"{outputs}×{depth}", number, *alone, *together])
    of_way = ("µs", "of bytes", "MLX / ours")
    heading = ("bits", "weight", "rows", *of_way, *(f"together: {name}" for name in of_way))
    return _about(rows) + markdown(heading, lines) + _range(float16)


def _range(rows: Rows) -> str:
    """What another dtype's products take together."""
    said = []
    for bits in each(rows, "bits"):
        few = [row for row in matching(rows, bits=bits) if int(row["rows"]) <= FEW]
        of_bytes = [float(row["together_us"]) / _bytes_us(row) for row in few]
        over = [float(row["together_over"]) for row in few]
        said.append(
            f"{min(of_bytes):.2f} to {max(of_bytes):.2f} of bytes in {bits} bits, "
            f"{min(over):.2f} to {max(over):.1f} times as fast as MLX"
        )
    return (
        f"\n{rows[0]['dtype']} in a run of its own, up to {FEW} rows together: {'; '.join(said)}.\n"
    )


def _bytes_us(row: dict[str, str]) -> float:
    return float(row["us"]) / float(row["of_bytes"])


def _figures(row: dict[str, str], ours: str, mlx: str, ratio: str) -> list[str]:
    us = float(row[ours])
    return [f"{us:.1f}", f"{us / _bytes_us(row):.2f}", f"{float(row[ratio]):.2f}"]


def _about(rows: Rows) -> str:
    slower = [row for row in rows if float(row["together_over"]) < 1]
    names = ", ".join(
        f"{row['outputs']}×{row['depth']} with {row['rows']} ({float(row['together_over']):.2f})"
        for row in slower
    )
    lost = f" Slower together, all in {slower[0]['bits']} bits: {names}." if slower else ""
    numbers = [int(row["rows"]) for row in rows]
    return (
        f"{on_gpu(rows[0])}, {rows[0]['dtype']}, "
        "groups of 64, by CUPTI: of calls that run alone, and of independent ones together. Of "
        "bytes: the time over that of the packed weights, scales and biases at the speed of a copy "
        f"in the same run. {len(rows)} products of {min(numbers)} to {max(numbers)} rows.{lost}\n\n"
    )


PARTS = [
    Part(
        "docs/norm_and_projection.md",
        "quantized products",
        ("h200_quantized", "h200_quantized_float16"),
        table,
    )
]
