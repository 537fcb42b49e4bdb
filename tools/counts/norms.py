"""Counts what the Metal kernels ask of the memory and of a threadgroup, on the software device.

    python tools counts.norms            prints the table of docs/performance/on_metal.md
    python tools counts.norms --check    exits with 1 if the page has another
    python tools counts.norms --write    writes it into the page

A cell says, in float32 and as metalsim counts them: bytes that loads and stores request for an
element of x, those of arrays of x's shape and those of weights, biases and their gradients;
barriers per row; SIMD-group operations per row.
"""

import sys

from mlx_norms._bench import page_part
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


def measure() -> str:
    """The table, in Markdown. Runs where the extension is one that runs on the software device."""
    simulator = attached()

    import mlx.core as mx

    import mlx_norms as norms

    def modulated(x, scale, shift):
        return norms.layer_norm(x, scale=scale, shift=shift)

    def gated(x, residual, factor, scale, shift):
        return norms.add_layer_norm(x, residual, factor=factor, scale=scale, shift=shift)

    def silu_gated(x, w, gate):
        return norms.rms_norm(x, w, gate=gate, activation="silu")

    def ops(length):
        shape, heads = (ROWS // HEADS, HEADS, length), (HEADS, length)
        # About a mean of 0: one beyond a quarter of a row's spread takes LayerNorm more steps.
        x, r = (n - mx.mean(n, -1, keepdims=True) for n in map(mx.random.normal, 2 * [shape]))
        w, b, w1, w2 = (mx.random.normal(s) for s in ((length,), (length,), heads, heads))
        f, s, t = (mx.random.normal((ROWS // HEADS, 1, length)) for _ in range(3))
        c = mx.contiguous(mx.swapaxes(x, 1, 2))
        mx.eval(c, x, r, w, b, w1, w2, f, s, t)
        yield "rms_norm", norms.rms_norm, (x, w)
        yield "layer_norm", norms.layer_norm, (x, w, b)
        yield "add_rms_norm", norms.add_rms_norm, (x, r, w)
        yield "add_layer_norm", norms.add_layer_norm, (x, r, w, b)
        yield "head_rms_norm", lambda x, w: norms.head_rms_norm(x, w, 1e-5), (x, w1)
        yield "qk_norm", lambda *a: norms.qk_norm(*a, 1e-5), (x, r, w1, w2)
        yield "rms_norm, axis 1", lambda x, w: norms.rms_norm(x, w, axis=1), (c, w)
        yield "layer_norm, axis 1", lambda *a: norms.layer_norm(*a, axis=1), (c, w, b)
        yield "l2_norm", norms.l2_norm, (x,)
        yield "norm_add_norm", norms.norm_add_norm, (x, r, b, w)
        yield "rms_norm, gate", silu_gated, (x, w, r)
        yield "layer_norm, scale and shift", modulated, (x, s, t)
        yield "add_layer_norm, factor, scale and shift", gated, (x, r, f, s, t)

    cells: dict[str, list[str]] = {}
    for length in LENGTHS:
        for op, function, arrays in ops(length):
            rows = ROWS * (2 if op == "qk_norm" else 1)
            forward, backward = forward_and_backward(simulator, function, arrays)
            for label, part in ((op, forward), (f"{op}, backward", backward)):
                results = [launch.result for launch in part]
                cells.setdefault(label, []).append(_cell(results, rows, length))
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
