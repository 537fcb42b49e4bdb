"""Counts what the Metal kernels ask of the memory and of a threadgroup, on the software device.

    python tools counts.norms            prints the table of docs/performance/on_metal.md
    python tools counts.norms --check    exits with 1 if the page has another
    python tools counts.norms --write    writes it into the page

A cell says, in float32 and as metalsim counts them: bytes that loads and stores request for an
element of x, those of arrays of x's shape and those of weights, biases and their gradients;
barriers per row; SIMD-group operations per row.
"""

import sys

from harness import page_part
from support.variant import ROOT

from . import page
from .simulated import attached, forward_and_backward

PAGE = ROOT / "docs" / "performance" / "on_metal.md"
BEGIN, END = "<!-- counts: python tools counts.norms --write -->\n", "<!-- end of counts -->\n"

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


def arrays_of(op, length):
    """About a mean of 0: one beyond a quarter of a row's spread takes LayerNorm more steps."""
    import mlx.core as mx

    sizes = dict.fromkeys("NHK", HEADS) | {"B": ROWS // HEADS, "D": length}
    first = op.axes[op.inputs[0]]
    for axes, name in zip(op.axes.values(), op.inputs, strict=True):
        a = mx.random.normal(op.shape(name, sizes))
        yield a - mx.mean(a, first.index("D"), keepdims=True) if len(axes) == 3 else a


def measure() -> str:
    """The table, in Markdown. Runs where the extension is one that runs on the software device."""
    simulator = attached()

    import mlx.core as mx

    from mlx_norms._table import OPS

    cells: dict[str, list[str]] = {}
    for length in LENGTHS:
        for label, name in NORMS.items():
            op = OPS[name or label]
            arrays = list(arrays_of(op, length))
            mx.eval(arrays)
            rows = ROWS * (2 if label == "rms_norms of heads" else 1)
            for of, part in zip(
                (label, f"{label}, backward"), forward_and_backward(simulator, op.ours(), arrays)
            ):
                results = [launch.result for launch in part]
                cells.setdefault(of, []).append(_cell(results, rows, length))
    heading = ["op", *(f"rows of {length}" for length in LENGTHS)]
    return page_part.markdown(heading, ([label, *row] for label, row in cells.items()))


def _cell(results, rows, length):
    def share(names):
        touched = (
            sum(count)
            for result in results
            for buffer, count in result.bytes.items()
            if buffer in names
        )
        return sum(touched) / (rows * length)

    barriers = sum(result.barriers for result in results) / rows
    simd_ops = sum(result.simd_ops for result in results) / rows
    return f"{share(OF_ROWS):.3g} + {share(OF_PARAMETERS):.3g}, {barriers:.3g}, {simd_ops:.3g}"


def main(arguments: list[str]) -> int:
    return page.main(arguments, "counts.norms", measure, PAGE, (BEGIN, END))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
