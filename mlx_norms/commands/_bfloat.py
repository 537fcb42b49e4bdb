"""Whether Metal's own conversions of bfloat16 have the bits of those in the kernels."""

from __future__ import annotations

import mlx.core as mx

from .. import _built

# The low halves about which rounding changes, with each of the high halves.
_LOW_HALVES = (0, 1, 0x7FFF, 0x8000, 0x8001, 0xFFFF)
# Of each float: it rounded, and its high half widened.
SOURCE = """
    uint i = thread_position_in_grid.x;
    float v = as_type<float>(floats[i]);
    ushort high = ushort(floats[i] >> 16);
    ours[2 * i] = kernels::float_to_bfloat(v);
    ours[2 * i + 1] = as_type<uint>(kernels::bfloat_to_float(high));
    native[2 * i] = as_type<ushort>(bfloat(v));
    native[2 * i + 1] = as_type<uint>(float(as_type<bfloat>(high)));
"""


def header() -> str:
    """The kernels' text, in a namespace that keeps its names apart from those of MLX's text."""
    lines = _built.FLOAT_TYPES.splitlines()
    text = "\n".join(line for line in lines if not line.startswith(("#include", "#pragma")))
    return f"#include <metal_stdlib>\nnamespace kernels {{\n{text}\n}} // namespace kernels\n"


def patterns() -> mx.array:
    """The bits of the floats that are converted."""
    high = mx.arange(1 << 16, dtype=mx.uint32)[:, None] << 16
    return (high | mx.array(_LOW_HALVES, mx.uint32)).flatten()


def convert(floats: mx.array) -> list[mx.array]:
    """Both conversions of each float on the GPU: ours, and the native ones."""
    kernel = mx.fast.metal_kernel(
        name="mlx_norms_bfloat",
        input_names=["floats"],
        output_names=["ours", "native"],
        source=SOURCE,
        header=header(),
    )
    outputs = kernel(
        inputs=[floats],
        grid=(floats.size, 1, 1),
        threadgroup=(256, 1, 1),
        output_shapes=[(floats.size, 2)] * 2,
        output_dtypes=[mx.uint32] * 2,
        stream=mx.gpu,
    )
    mx.eval(outputs)
    return outputs


def verdict() -> str:
    """One line: whether both have the same bits on this machine's GPU, or why that is not known."""
    said = "bfloat16 conversion: "
    if not mx.metal.is_available():
        return said + "not run, as there is no Metal device"
    floats = patterns()
    try:
        ours, native = convert(floats)
    except Exception as error:  # whatever Metal's compiler raises is reported
        return said + f"not run: {type(error).__name__}: {error}"
    return said + compared(floats, ours, native)


def compared(floats: mx.array, ours: mx.array, native: mx.array) -> str:
    """How the two results of ``convert`` differ. All bits of NaN are taken for the same."""
    with mx.stream(mx.cpu):
        infinity = mx.array([0x7F80, 0x7F800000], mx.uint32)
        without_sign = mx.array([0x7FFF, 0x7FFFFFFF], mx.uint32)
        nan = ((ours & without_sign) > infinity) & ((native & without_sign) > infinity)
        differs = (ours != native) & ~nan
        rounded, widened = mx.sum(differs.astype(mx.int32), axis=0).tolist()
        if not rounded + widened:
            return f"native bits equal ours ({floats.size} patterns)"
        first, way = divmod(int(mx.argmax(differs)), 2)
    what = (
        f"{floats[first].item() >> 16:#x} widened" if way else f"{floats[first].item():#x} rounded"
    )
    return (
        f"native bits differ from ours, rounded in {rounded} and widened in {widened} of"
        f" {floats.size} patterns; first {what}: {native[first, way].item():#x} instead of"
        f" {ours[first, way].item():#x}"
    )
