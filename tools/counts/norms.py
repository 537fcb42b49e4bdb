"""What norms of rows and of groups ask of the memory and of a threadgroup, in float32.

A cell says, as metalsim counts them: bytes that loads and stores request for an element of x,
those of arrays of x's shape and others; barriers and SIMD-group operations per row or group; of
groups the launches, too. Of rows the others are weights, biases and their gradients. A group of an
instance norm is a channel of an image, one of a batch norm a channel.
"""

import math

from harness import page_part

from .simulated import forward_and_backward

ROWS, HEADS = 64, 4
LENGTHS = (128, 4096, 65536)
OF_ROWS = {
    *("x", "residual", "gate", "x2", "normalized", "sum", "y", "y2"),
    *("s", "cotangent", "sum_cotangent", "input_gradient", "gate_gradient"),
    *("x_gradient", "sum_gradient"),
}
OF_PARAMETERS = {
    *("weight", "bias", "weight2", "scale", "shift", "factor", "post_weight"),
    *("weight_partials", "bias_partials", "post_weight_partials"),
    *("kept_statistics", "partials", "gradient"),
}
# Names in the page, and those of the table of ops.
NORMS = {
    **dict.fromkeys(("rms_norm", "layer_norm", "add_rms_norm", "add_layer_norm")),
    "rms_norm of heads": "rms_norm heads HD",
    "rms_norms of heads": "rms_norms heads HD",
    "rms_norm, axis 1": "rms_norm axis 1",
    "layer_norm, axis 1": "layer_norm axis 1",
    "l2_norm": "l2_norm bounded",
    "norm_add_norm": None,
    "rms_norm, gate": "rms_norm gate silu",
    "layer_norm, scale and shift": "layer_norm bare scale B1D",
    "add_layer_norm, factor, scale and shift": "add_layer_norm bare factor B1D scale B1D",
}


GROUPS = 32
IMAGES = ((4, 8, 8, 320), (1, 64, 64, 64))
OF_IMAGES = {"x", "y", "cotangent", "gradient"}
# Names in the page; those of the table of ops, and how many groups some samples and channels have.
GROUP_NORMS = {
    "group_norm": ("group_norm", lambda n, c: n * GROUPS),
    "group_norm, pytorch_compatible": ("group_norm pytorch_compatible", lambda n, c: n * GROUPS),
    "group_norm, pytorch_compatible, silu": (
        "group_norm pytorch_compatible silu",
        lambda n, c: n * GROUPS,
    ),
    "instance_norm": ("instance_norm bare", lambda n, c: n * c),
    "batch_norm, training": ("batch_norm BNC training", lambda n, c: c),
    "batch_norm, inference": ("batch_norm BNC running", lambda n, c: c),
}


def arrays_of(op, sizes):
    """About a mean of 0: one beyond a quarter of a row's spread takes LayerNorm more steps."""
    import mlx.core as mx

    arrays = []
    for axes, name in zip(op.axes.values(), op.inputs, strict=True):
        a = mx.random.normal(op.shape(name, sizes))
        if name == "var":
            a = mx.abs(a) + 0.5
        elif len(axes) == 3 and "D" in axes:
            a = a - mx.mean(a, op.axes[op.inputs[0]].index("D"), keepdims=True)
        arrays.append(a)
    mx.eval(arrays)
    return arrays


def of_rows(simulator) -> str:
    """A table in Markdown."""
    from mlx_norms._table import OPS

    cells = {}
    for length in LENGTHS:
        for label, name in NORMS.items():
            op, rows = OPS[name or label], ROWS * (2 if label == "rms_norms of heads" else 1)
            sizes = dict.fromkeys("NHK", HEADS) | {"B": ROWS // HEADS, "D": length}
            parts = forward_and_backward(simulator, op.ours(), arrays_of(op, sizes))
            for of, part in zip((label, f"{label}, backward"), parts):
                kinds = [[names] * len(part) for names in (OF_ROWS, OF_PARAMETERS)]
                cells.setdefault(of, []).append(_cell(part, kinds, rows * length, rows))
    return _table([f"rows of {length}" for length in LENGTHS], cells)


def of_groups(simulator) -> str:
    """A table in Markdown."""
    from mlx_norms._table import OPS

    cells = {}
    for samples, *positions, channels in IMAGES:
        for label, (name, groups) in GROUP_NORMS.items():
            count = math.prod(positions)
            arrays = arrays_of(OPS[name], {"B": samples, "N": count, "C": channels})
            options = {"num_groups": GROUPS} if name.startswith("group") else {}
            parts = forward_and_backward(simulator, OPS[name].ours(**options), arrays)
            for of, part in zip((label, f"{label}, backward"), parts):
                kinds = [OF_IMAGES] * len(part), [launch.arrays - OF_IMAGES for launch in part]
                elements = samples * count * channels
                cell = _cell(part, kinds, elements, groups(samples, channels))
                cells.setdefault(of, []).append(f"{cell}, {len(part)}")
    return _table(["×".join(map(str, shape)) for shape in IMAGES], cells)


def _cell(launches, kinds, elements, groups):
    """`kinds` are names of arrays, for each launch."""
    touched = (
        sum(
            sum(launch.result.bytes[array])
            for launch, names in zip(launches, kind)
            for array in names & launch.result.bytes.keys()
        )
        for kind in kinds
    )
    barriers, simd_ops = (
        sum(getattr(launch.result, name) for launch in launches) / groups
        for name in ("barriers", "simd_ops")
    )
    shares = " + ".join(f"{count / elements:.3g}" for count in touched)
    return f"{shares}, {barriers:.3g}, {simd_ops:.3g}"


def _table(columns, cells):
    return page_part.markdown(["op", *columns], ([label, *row] for label, row in cells.items()))
