"""The README's tables: what is gained by what one runs, and single norms; losses, too.

The figures are those of models.py, norms.py and cpu.py.
"""

from __future__ import annotations

from harness.page_part import Part, Rows, each, markdown, matching, one

UNMEASURED = "unmeasured"
# The medians of llama-0.6B and qwen3-0.6B on several visits, which are not stored: by `python bench
# model`, and the last by turns of 16 steps; the code of each was another.
SMALL = ("**0.90 to 0.96**", "0.95 to 1.03")
PROJECTED = "projections"
OF_A_PRODUCT = ": MLX's quantized product of few rows, not a norm"


def of_models(model: Rows, pair: Rows, blocks: Rows, vae: Rows, cpu: Rows) -> str:
    """A line for each thing that one runs, with what is known of it."""
    model = matching(model, how="wall")
    steps = each([row for row in model if int(row["rows"]) > 1], "phase")
    (several,) = [phase for phase in steps if phase.startswith("decode")]
    tokens = matching(model, phase=several)[0]["rows"]
    decoding, at_once = matching(model, phase="decode"), matching(model, phase=several)
    prompts = matching(model, phase="prefill")
    gpu = "H200"
    lines = [
        ("mlx_lm, decoding, bf16", *both(decoding, "bf16"), gpu),
        ("the same in 4 bits", *both(decoding, "4-bit"), gpu),
        (
            f"4 bits, {tokens} tokens of a sequence at once",
            decode(at_once, "4-bit"),
            decode(at_once, "4-bit", PROJECTED) + OF_A_PRODUCT,
            gpu,
        ),
        ("4 bits, sharded", *both(pair, "4-bit"), f"2 {gpu}s"),
        ("bf16, a model of 0.6B", *SMALL, f"{gpu}, not stored"),
        ("mlx_lm, a prompt, bf16", *both(prompts, "bf16"), gpu),
        ("image, video and audio blocks", among(blocks, vae, "forward"), "", gpu),
        ("a training step of these blocks", among(blocks, vae, "training step"), "", gpu),
        ("several sequences; training a whole model", UNMEASURED, UNMEASURED, ""),
        (
            "rms norms alone on a CPU",
            f"float32 {cpu_ratio(cpu, 'float32')}, bf16 {cpu_ratio(cpu, 'bfloat16')}",
            f"whole models: {UNMEASURED}",
            f"x86, {cpu[0]['cores']} cores",
        ),
        ("anything on a Mac", "**unknown**", "**unknown**", "[never run](docs/mac.md)"),
    ]
    return markdown(("you run", "`patch()`", "`patch(projections=True)`", "where"), lines)


def of_norms(lengths: Rows, speed: Rows, calls: Rows) -> str:
    """Single norms on a GPU."""
    rows = dict(section="lengths", rows="16384", length="4096")
    layer, sums = (kernel_ratio(lengths, op=op, **rows) for op in ("layer", "add+rms"))
    gradients = kernel_ratio(speed, section="backward", op="layer", rows="8192", length="8192")
    rms = kernel_ratio(speed, section="kernels", op="rms", rows="32768", length="4096")
    grid = matching(calls, section="calls, grid", op="add+rms", rows="512", length="8192")
    together = factor(float(one(grid, side="mx.fast", dtype="bf16")["over"]))
    return (
        f"One norm in bfloat16 on an H200, beside `mx.fast`: layer norm {layer} times as fast, its "
        f"gradients {gradients}, residual add + rms norm {sums}, rms norm alone {rms}. Slowest: "
        f"hundreds of independent adds and rms norms of 512×8192 in one `mx.eval`, {together}.\n"
    )


def kernel_ratio(rows: Rows, /, **values: str) -> str:
    """The time of mx.fast over ours in this config."""
    of = [one(rows, dtype="bf16", side=name, **values) for name in ("mx.fast", "ours")]
    peer, ours = (float(row["us"]) for row in of)
    return factor(peer / ours)


def both(rows: Rows, weights: str) -> tuple[str, str]:
    """Of patch(), and with projections."""
    return decode(rows, weights), decode(rows, weights, PROJECTED)


def decode(rows: Rows, weights: str, side: str = "patched") -> str:
    """The ratio, with the ends around it where 1 is between them."""
    row = one(rows, format=weights, side=side)
    ratio = factor(float(row["over"]))
    ends = [float(row[end]) for end in ("over_lower", "over_upper") if row[end]]
    unclear = ends and ends[0] <= 1 <= ends[1]
    if unclear:
        return f"{ratio} ({ends[0]:.2f} to {ends[1]:.2f})"
    return ratio if float(row["over"]) >= 1 else f"**{ratio}**"


def among(blocks: Rows, vae: Rows, what: str) -> str:
    """The least and the largest ratio of the blocks of image and video models."""
    of = matching(blocks + vae, side="patched", what=what, compiled="False")
    ratios = [float(row["over"]) for row in of if not row["block"].startswith("qwen3")]
    return f"{factor(min(ratios))} to {factor(max(ratios))}"


def cpu_ratio(rows: Rows, dtype: str) -> str:
    config = dict(op="rms", rows="512", length="4096", side="mx.fast", dtype=dtype)
    return factor(float(one(rows, **config)["over"]))


def factor(ratio: float) -> str:
    return f"{ratio:.1f}" if ratio >= 1.995 else f"{ratio:.2f}"


PARTS = [
    Part(
        "README.md",
        "gains",
        ("h200_model", "h200_x2", "h200_package_blocks", "h200_vae_block", "cpu_copy"),
        of_models,
    ),
    Part("README.md", "single norms", ("h200_lengths", "h200_speed", "h200_calls"), of_norms),
]
