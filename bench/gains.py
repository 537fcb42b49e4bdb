"""The README's table of what is gained and what is not, from stored measurements.

python bench/gains.py            prints the table
python bench/gains.py --check    exits with 1 if the README has another
python bench/gains.py --write    writes it into the README

The figures come from gpu_speed.py (h200_lengths.csv, h200_speed.csv, h200_calls.csv), gpu_model.py
(h200_model.csv), tensor_parallel.py (h200_x2.csv) and cpu_copy.py (cpu_copy.csv).
"""

from __future__ import annotations

import sys
from pathlib import Path

from mlx_norms._bench import page_part

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "README.md"
NAMES = ("h200_lengths", "h200_speed", "h200_calls", "h200_model", "h200_x2", "cpu_copy")
RESULTS = [ROOT / "bench" / "results" / f"{name}.csv" for name in NAMES]
BEGIN = "<!-- gains: python bench/gains.py --write -->\n"
END = "<!-- end of gains -->\n"

Rows = list[dict[str, str]]


def table(lengths: Rows, speed: Rows, calls: Rows, model: Rows, pair: Rows, cpu: Rows) -> str:
    """At most ten rows in Markdown. The factor is stock's time over ours."""
    fast = "`mx.fast`"
    together = call(calls, "add+rms", "512", "8192")
    two_steps = "add, `mx.fast`"
    tokens = "stock mlx_lm"
    longest = f"{min(lengths_of(lengths))} to {max(lengths_of(lengths))}"
    bf16_tokens = float(one(model, format="bf16", phase="decode", side="stock")["tokens_a_second"])
    bits_tokens = float(one(model, format="4-bit", phase="decode", side="stock")["tokens_a_second"])
    lines = [
        ("what", "where, bfloat16 unless named", "peer", "times as fast"),
        ("---", "---", "---", "---"),
        (
            "layer norm",
            f"H200, kernel time, rows of {longest}",
            fast,
            span(kernel_ratios(lengths, op="layer")),
        ),
        (
            "its gradients",
            "H200, kernel time, 8192×8192",
            fast,
            factor(*kernel_ratios(speed, section="backward", op="layer", length="8192")),
        ),
        (
            "add + rms norm",
            f"H200, kernel time, rows of {longest}",
            two_steps,
            span(kernel_ratios(lengths, op="add+rms")),
        ),
        (
            "rms norm",
            "H200, kernel time, 32768×4096",
            fast,
            factor(*kernel_ratios(speed, section="kernels", op="rms", rows="32768", length="4096")),
        ),
        ("rms norm", "H200, through `mx.eval`, 1×4096", fast, one_row(calls)),
        (
            "add + rms norm",
            f"H200, {together['calls_an_eval']} per `mx.eval`, 512×8192",
            two_steps,
            factor(1 / float(together["over_best_peer"])),
        ),
        (
            "decoding, llama of 8B shapes",
            "H200, `patch()` / with projections",
            tokens,
            decode(matching(model, phase="decode"), "bf16"),
        ),
        (
            f"the same, 4-bit (stock: {bits_tokens / bf16_tokens:.2f} of its bfloat16 speed)",
            "H200, `patch()` / with projections",
            tokens,
            decode(matching(model, phase="decode"), "4-bit"),
        ),
        (
            "the same, sharded, bfloat16; 4-bit",
            "2 H200s, NCCL, `patch()` / with projections",
            tokens,
            "; ".join(decode(pair, weights) for weights in ("bf16", "4-bit")),
        ),
        (
            "rms norm, float32 / bfloat16",
            f"CPU, {cpu[0]['cores']} threads, 512×4096, malloc keeps its pages",
            fast,
            " / ".join(on_cpu(cpu, dtype) for dtype in ("float32", "bfloat16")),
        ),
    ]
    return page_part.markdown(lines)


def matching(rows: Rows, /, **values: str) -> Rows:
    return [row for row in rows if all(row[name] == value for name, value in values.items())]


def one(rows: Rows, /, **values: str) -> dict[str, str]:
    (row,) = matching(rows, **values)
    return row


def lengths_of(rows: Rows) -> set[int]:
    return {int(row["length"]) for row in rows}


def kernel_ratios(rows: Rows, /, **values: str) -> list[float]:
    """mx.fast's time over ours in each of these cells."""
    ours = matching(rows, contestant="ours", dtype="bf16", **values)
    cell = ("section", "op", "dtype", "rows", "length")
    peers = [one(rows, contestant="mx.fast", **{name: row[name] for name in cell}) for row in ours]
    return [float(peer["us"]) / float(row["us"]) for row, peer in zip(ours, peers, strict=True)]


def call(rows: Rows, op: str, count: str, length: str, section: str = "calls, grid"):
    cell = dict(section=section, op=op, dtype="bf16", rows=count, length=length)
    return one(rows, contestant="ours", **cell)


def one_row(rows: Rows) -> str:
    ours = call(rows, "rms", "1", "4096", "calls, one row")
    names = ("over_best_peer", "over_upper", "over_lower")
    median, lower, upper = (1 / float(ours[name]) for name in names)
    if lower < 1 < upper:
        return f"too noisy to tell ({factor(lower)} to {factor(upper)})"
    return factor(median)


def decode(rows: Rows, weights: str) -> str:
    sides = [one(rows, format=weights, side=side) for side in ("patched", "projections")]
    return " / ".join(factor(float(row["stock_over_side"])) for row in sides)


def on_cpu(rows: Rows, dtype: str) -> str:
    found = one(rows, op="rms", dtype=dtype, rows="512", length="4096", ratio="mx.fast/ours")
    return factor(float(found["median"]))


def span(ratios: list[float]) -> str:
    return f"{factor(min(ratios))} to {factor(max(ratios))}"


def factor(ratio: float) -> str:
    return f"{ratio:.1f}" if ratio >= 1.995 else f"{ratio:.2f}"


def main() -> int:
    return page_part.main(__doc__, PAGE, (BEGIN, END), RESULTS, table)


if __name__ == "__main__":
    sys.exit(main())
