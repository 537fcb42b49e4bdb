"""The table of quantized products on CUDA.

python bench quantized --csv bench/results/h200_quantized.csv
python bench quantized --dtypes float16 --csv bench/results/h200_quantized_float16.csv
"""

from __future__ import annotations

from harness.page_part import Part, Rows, each, matching, number, on_gpu, table

SHOWN = ("1", "4")  # rows
WEIGHTS = ("4096×4096", "4096×14336")
FEW = 8  # rows, which share the matrix units' work


def of_bytes(row: dict[str, str], column: str) -> float:
    """A time over that of the matrix's bytes at the speed of a copy."""
    return float(row[column]) * float(row["limit"]) * 1e3 / float(row["moved"])


def products(rows: Rows, float16: Rows) -> str:
    """A line for each matrix and number of rows in SHOWN, and the range of another dtype."""
    cells = {}
    for way, us, over in (("", "alone_us", "alone_over"), ("together: ", "us", "over")):
        cells[f"{way}µs"] = number(us, ".1f", side="ours")
        ours = lambda of, us=us: of_bytes(*matching(of, side="ours"), us)  # noqa: E731
        cells[f"{way}of bytes"] = lambda of, ours=ours: f"{ours(of):.2f}"
        cells[f"{way}MLX / ours"] = number(over, ".2f", side="mlx")
    shown = [row | {"weight": f"{row['outputs']}×{row['depth']}"} for row in rows]
    shown = [row for row in shown if row["rows"] in SHOWN and row["weight"] in WEIGHTS]
    keys = {name: name for name in ("bits", "weight", "rows")}
    return _about(rows) + table(shown, keys, cells) + _range(float16)


def _range(rows: Rows) -> str:
    """What another dtype's products take together."""
    said = []
    for bits in each(rows, "bits"):
        few = [row for row in matching(rows, bits=bits) if int(row["rows"]) <= FEW]
        shares = [of_bytes(row, "us") for row in matching(few, side="ours")]
        over = [float(row["over"]) for row in matching(few, side="mlx")]
        said.append(
            f"{min(shares):.2f} to {max(shares):.2f} of bytes in {bits} bits, "
            f"{min(over):.2f} to {max(over):.1f} times as fast as MLX"
        )
    return (
        f"\n{rows[0]['dtype']} in a run of its own, up to {FEW} rows together: {'; '.join(said)}.\n"
    )


def _about(rows: Rows) -> str:
    peers = matching(rows, side="mlx")
    slower = [row for row in peers if float(row["over"]) < 1]
    names = ", ".join(
        f"{row['outputs']}×{row['depth']} with {row['rows']} ({float(row['over']):.2f})"
        for row in slower
    )
    lost = f" Slower together, all in {slower[0]['bits']} bits: {names}." if slower else ""
    numbers = [int(row["rows"]) for row in rows]
    return (
        f"{on_gpu(rows[0])}, {rows[0]['dtype']}, "
        "groups of 64, by CUPTI: of calls that run alone, and of independent ones together. Of "
        "bytes: the time over that of the packed weights, scales and biases at the speed of a copy "
        f"in the same run. {len(peers)} products of {min(numbers)} to {max(numbers)} rows."
        f"{lost}\n\n"
    )


PARTS = [
    Part(
        "docs/norm_and_projection.md",
        "quantized products",
        ("h200_quantized", "h200_quantized_float16"),
        products,
    )
]
