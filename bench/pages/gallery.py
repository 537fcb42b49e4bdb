"""The gains in the gallery, one for each thing that a model writes.

The figures come from the files that the other tables show, each with its condition.
"""

from __future__ import annotations

from collections.abc import Callable

from harness.page_part import Part, Rows, measured_with, one, reading, stored

HOWS = ("many", "one")
MLX = "0.32.4"  # which the page names once


def on_gpu(row: dict[str, str]) -> str:
    """The GPU of a row in few words."""
    assert row["mlx"] == MLX, f"the gallery's figures are with MLX {MLX}"
    return row["device"].removeprefix("gpu, NVIDIA ")


def times(ratio: str | float) -> str:
    """How many times as long the peer takes, in words."""
    return f"{float(ratio):.1f}" if float(ratio) >= 9.95 else f"{float(ratio):.2f}"


def beside_mlx(file: str, where: str, /, **values: str) -> str:
    """A norm with what is written around it, beside MLX's ops, on a GPU."""
    rows = stored(file)
    eager, compiled, gradient, compiled_gradient = (
        times(one(rows, dtype="bfloat16", backward=way, side=side, **values)["over"])
        for way in ("False", "True")
        for side in ("eager", "compiled")
    )
    return (
        f"{on_gpu(rows[0])}, bfloat16, {where}, kernel time: {eager} times as fast as MLX's "
        f"ops, {compiled} as compiled ones; gradients {gradient} and "
        f"{compiled_gradient}."
    )


def chain(op: str, rows: int, length: int) -> str:
    shape = f"{rows}×{length}"
    return beside_mlx("h200_chains", shape, op=op, rows=str(rows), length=str(length))


def images(op: str, shape: str = "4x128x128x320") -> str:
    return beside_mlx("h200_group_norm", shape.replace("x", "×"), op=op, shape=shape)


def kernel(op: str, peer: str) -> str:
    """A norm of 16384 rows of 4096 on a GPU."""
    rows = stored("h200_lengths")
    config = dict(section="lengths", op=op, dtype="bf16", rows="16384", length="4096")
    theirs, ours = (one(rows, side=name, **config) for name in ("mx.fast", "ours"))
    ratio = times(float(theirs["us"]) / float(ours["us"]))
    return f"{on_gpu(ours)}, bfloat16, 16384×4096, kernel time: {ratio} times as fast as {peer}."


def on_the_cpu(file: str, op: str, rows: int, length: int, peer: str) -> str:
    config = dict(op=op, rows=str(rows), length=str(length), side="mx.fast")
    found = {name: one(stored(file), dtype=name, **config) for name in ("float32", "bfloat16")}
    wide, narrow = (times(row["over"]) for row in found.values())
    row = found["float32"]
    return (
        f"{row['device'].removeprefix('cpu, ')}, {row['cores']} cores, "
        f"{rows}×{length}: {wide} times as fast as {peer} in float32, {narrow} in bfloat16."
    )


def decoding(side: str) -> str:
    rows = stored("h200_model")
    found = [
        one(rows, phase="decode", format=name, side=side, how="wall") for name in ("bf16", "4-bit")
    ]
    wide, narrow = (times(row["over"]) for row in found)
    return (
        f"{on_gpu(found[0])}, a llama of 8B shapes, decoding one token at a time: {wide} times "
        f"as fast as stock in bfloat16, {narrow} in 4 bits."
    )


def product() -> str:
    row = one(
        stored("h200_quantized"),
        bits="4",
        outputs="4096",
        depth="14336",
        rows="4",
        residual="False",
        side="mlx",
    )
    return (
        f"{on_gpu(row)}, bfloat16, 4 rows, a 4-bit matrix of 4096×14336, without a residual, "
        f"kernel time of a call alone: {times(row['alone_over'])} times as fast as MLX's."
    )


def together_and_alone(rows: Rows, /, **values: str) -> list[str]:
    """MLX's time over ours, of many calls in an mx.eval and of one."""
    return [times(one(rows, side="stock", how=how, **values)["over"]) for how in HOWS]


def ropes() -> str:
    rows = stored("h200_qk_norm_rope")
    many, _ = together_and_alone(rows, batch="1", tokens="4096", head_dim="128")
    _, token = together_and_alone(rows, batch="1", tokens="1", head_dim="128")
    _, worst = together_and_alone(rows, batch="1", tokens="1", head_dim="96")
    return (
        f"{on_gpu(rows[0])}, bfloat16, heads of 128, 4096 tokens evaluated together: {many} times "
        f"as fast as MLX's; one token alone: {token}, heads of 96 {worst}."
    )


def several() -> str:
    rows = stored("h200_several_norms")
    case = dict(case="latents 1536 + 512", tokens="1024")
    many, alone = together_and_alone(rows, **case)
    return (
        f"{on_gpu(rows[0])}, bfloat16, 1024 tokens, evaluated together: {many} times as fast as "
        f"`mx.fast`; alone: {alone}."
    )


OPS, FAST = "MLX's chain of ops", "`mx.fast`"
GAINS = {
    "adaLN": lambda: f"{chain('ada', 16384, 3072)} {chain('ada', 32, 3072)}",
    "gated residual": lambda: f"{chain('add_ada', 16384, 3072)}",
    "residual": lambda: f"{kernel('add+rms', 'an add and `mx.fast`')} {decoding('patched')}",
    "layer norm": lambda: (
        f"{kernel('layer', FAST)} {on_the_cpu('cpu_copy', 'layer', 512, 4096, FAST)}"
    ),
    "rms norm": lambda: f"{kernel('rms', FAST)} {on_the_cpu('cpu_copy', 'rms', 512, 4096, FAST)}",
    "layer scale": lambda: on_the_cpu("cpu_copy_around", "add+factor+rms", 4096, 3072, OPS),
    "two norms": lambda: chain("norm_add_norm", 8192, 4096),
    "gate": lambda: chain("gated_rms", 8192, 4096),
    "groups": lambda: on_the_cpu("cpu_copy_around", "groups", 4096, 3072, OPS),
    "several norms": several,
    "ropes": ropes,
    "group norm": lambda: f"{images('group_pytorch_silu')} In MLX's order: {images('group_silu')}",
    "instance norm": lambda: images("instance"),
    "batch norm": lambda: images("batch_training"),
    "channels first": lambda: images("layer_axis1"),
    "l2 norm": lambda: on_the_cpu("cpu_copy_around", "l2", 4096, 3072, OPS),
    "projections": lambda: decoding("projections"),
    "quantized product": product,
}


def said(gain: Callable[[], str]) -> str:
    """A gain, and the version and commit that were measured."""
    with reading() as names:
        text = gain()
    return f"**Gain:** {text} [{measured_with(names)}]\n"


PARTS = [
    Part("docs/gallery.md", f"gain of {name}", (), lambda gain=gain: said(gain), dated=False)
    for name, gain in GAINS.items()
]
