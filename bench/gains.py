"""The README's table of what is gained and what is not, from stored measurements.

python bench/gains.py            prints the table
python bench/gains.py --check    exits with 1 if the README differs
python bench/gains.py --write    writes it into the README

The figures come from gpu_speed.py (h200_lengths.csv, h200_speed.csv), gpu_calls.py
(h200_calls.csv), gpu_model.py (h200_model.csv), tensor_parallel.py (h200_x2.csv) and cpu_copy.py
(cpu_copy.csv).
"""

from __future__ import annotations

import sys
from pathlib import Path

from mlx_norms._bench import page_part
from mlx_norms._bench.page_part import Rows, each, matching, one

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "README.md"
NAMES = ("h200_lengths", "h200_speed", "h200_calls", "h200_model", "h200_x2", "cpu_copy")
RESULTS = [ROOT / "bench" / "results" / f"{name}.csv" for name in NAMES]
BEGIN = "<!-- gains: python bench/gains.py --write -->\n"
END = "<!-- end of gains -->\n"

FAST, TWO_STEPS, STOCK = "`mx.fast`", "add, `mx.fast`", "stock mlx_lm"
SIDES = "`patch()` / with projections"


def table(lengths: Rows, speed: Rows, calls: Rows, model: Rows, pair: Rows, cpu: Rows) -> str:
    """At most ten rows in Markdown. The factor is stock's time over ours."""
    kernels = "H200, kernel time"
    lengths = matching(lengths, section="lengths")
    of_rows = [int(row["length"]) for row in lengths]
    of_lengths = f"{kernels}, rows of {min(of_rows)} to {max(of_rows)}"
    gradients = kernel_ratios(speed, section="backward", op="layer", length="8192")
    rms = kernel_ratios(speed, section="kernels", op="rms", rows="32768", length="4096")
    together = call(calls, "add+rms", "512", "8192")
    at_once = f"H200, {together['calls_per_eval']} per `mx.eval`, 512×8192"
    decoding = matching(model, phase="decode")
    (several,) = each(matching(model, format="4-bit"), "phase")[2:]
    steps = (decoding, matching(model, phase=several))
    tokens = steps[1][0]["rows"]
    bits = "; ".join(decode(rows, "4-bit") for rows in steps)
    sharded = "; ".join(decode(pair, weights) for weights in ("bf16", "4-bit"))
    on_cpu = f"CPU, {cpu[0]['cores']} threads, 512×4096, malloc keeps its pages"
    lines = [
        ("layer norm", of_lengths, FAST, span(kernel_ratios(lengths, op="layer"))),
        ("its gradients", f"{kernels}, 8192×8192", FAST, factor(*gradients)),
        ("add + rms norm", of_lengths, TWO_STEPS, span(kernel_ratios(lengths, op="add+rms"))),
        ("rms norm", f"{kernels}, 32768×4096", FAST, factor(*rms)),
        ("rms norm", "H200, through `mx.eval`, 1×4096", FAST, one_row(calls)),
        ("add + rms norm", at_once, TWO_STEPS, factor(1 / float(together["over_best_peer"]))),
        ("decoding, llama of 8B shapes", f"H200, {SIDES}", STOCK, decode(decoding, "bf16")),
        (f"the same, 4-bit; {tokens} tokens a step", f"H200, {SIDES}", STOCK, bits),
        ("the same, sharded, bfloat16; 4-bit", f"2 H200s, NCCL, {SIDES}", STOCK, sharded),
        ("rms norm, float32 / bfloat16", on_cpu, FAST, " / ".join(map(factor, cpu_ratios(cpu)))),
    ]
    heading = ("what", "where, bfloat16 unless named", "peer", "times as fast")
    return page_part.markdown(heading, lines)


def kernel_ratios(rows: Rows, /, **values: str) -> list[float]:
    """The time of mx.fast over ours in each of these configs."""
    ours = matching(rows, provider="ours", dtype="bf16", **values)
    config = ("section", "op", "dtype", "rows", "length")
    peers = [one(rows, provider="mx.fast", **{name: row[name] for name in config}) for row in ours]
    return [float(peer["us"]) / float(row["us"]) for row, peer in zip(ours, peers, strict=True)]


def call(rows: Rows, op: str, count: str, length: str, section: str = "calls, grid"):
    config = dict(section=section, op=op, dtype="bf16", rows=count, length=length)
    return one(rows, provider="ours", **config)


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


def cpu_ratios(rows: Rows) -> list[float]:
    rows = matching(rows, op="rms", rows="512", length="4096", ratio="mx.fast/ours")
    return [float(one(rows, dtype=dtype)["median"]) for dtype in ("float32", "bfloat16")]


def span(ratios: list[float]) -> str:
    return f"{factor(min(ratios))} to {factor(max(ratios))}"


def factor(ratio: float) -> str:
    return f"{ratio:.1f}" if ratio >= 1.995 else f"{ratio:.2f}"


def main() -> int:
    return page_part.main(__doc__, PAGE, (BEGIN, END), RESULTS, table)


if __name__ == "__main__":
    sys.exit(main())
