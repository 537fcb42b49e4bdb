"""The README's table of what is gained and what is not, from stored measurements.

The figures are those of norms.py, models.py and cpu.py.
"""

from __future__ import annotations

from harness.page_part import Part, Rows, each, markdown, matching, one

FAST, TWO_STEPS, STOCK = "`mx.fast`", "add, `mx.fast`", "stock mlx_lm"
PROJECTED = "projections"


def table(lengths: Rows, speed: Rows, calls: Rows, model: Rows, pair: Rows, cpu: Rows) -> str:
    """A figure a row in Markdown: stock's time over ours."""
    rows = dict(section="lengths", rows="16384", length="4096")
    layer, sums = (kernel_ratio(lengths, op=op, **rows) for op in ("layer", "add+rms"))
    gradients = kernel_ratio(speed, section="backward", op="layer", rows="8192", length="8192")
    rms = kernel_ratio(speed, section="kernels", op="rms", rows="32768", length="4096")
    grid = matching(calls, section="calls, grid", op="add+rms", rows="512", length="8192")
    together = one(grid, side="mx.fast", dtype="bf16")
    at_once = f"H200, {together['calls']} calls per `mx.eval`, 512×8192"
    model = matching(model, how="wall")
    decoding = matching(model, phase="decode")
    (several,) = each(matching(model, format="4-bit"), "phase")[2:]
    steps = matching(model, phase=several)
    tokens = f"the same, {steps[0]['rows']} tokens a step"
    on_cpu = f"CPU, {cpu[0]['cores']} threads, 512×4096"
    lines = [
        ("layer norm", "H200, kernel time, 16384×4096", FAST, layer),
        ("its gradients", "H200, kernel time, 8192×8192", FAST, gradients),
        ("add + rms norm", "H200, kernel time, 16384×4096", TWO_STEPS, sums),
        ("rms norm", "H200, kernel time, 32768×4096", FAST, rms),
        ("add + rms norm", at_once, TWO_STEPS, factor(float(together["over"]))),
        ("decoding, llama of 8B shapes", "H200, `patch()`", STOCK, decode(decoding, "bf16")),
        ("the same", "H200, with projections", STOCK, decode(decoding, "bf16", PROJECTED)),
        ("the same, 4-bit", "H200, with projections", STOCK, decode(decoding, "4-bit", PROJECTED)),
        (tokens, "H200, with projections", STOCK, decode(steps, "4-bit", PROJECTED)),
        ("decoding, 4-bit, sharded", "2 H200s, `patch()`", STOCK, decode(pair, "4-bit")),
        ("rms norm, float32", on_cpu, FAST, cpu_ratio(cpu, "float32")),
        ("rms norm", on_cpu, FAST, cpu_ratio(cpu, "bfloat16")),
    ]
    heading = ("what, bfloat16 unless named", "where", "peer", "times as fast")
    return markdown(heading, lines)


def kernel_ratio(rows: Rows, /, **values: str) -> str:
    """The time of mx.fast over ours in this config."""
    of = [one(rows, dtype="bf16", side=name, **values) for name in ("mx.fast", "ours")]
    peer, ours = (float(row["us"]) for row in of)
    return factor(peer / ours)


def decode(rows: Rows, weights: str, side: str = "patched") -> str:
    return factor(float(one(rows, format=weights, side=side)["over"]))


def cpu_ratio(rows: Rows, dtype: str) -> str:
    config = dict(op="rms", rows="512", length="4096", side="mx.fast", dtype=dtype)
    return factor(float(one(rows, **config)["over"]))


def factor(ratio: float) -> str:
    return f"{ratio:.1f}" if ratio >= 1.995 else f"{ratio:.2f}"


PARTS = [
    Part(
        "README.md",
        "gains",
        ("h200_lengths", "h200_speed", "h200_calls", "h200_model", "h200_x2", "cpu_copy"),
        table,
    )
]
