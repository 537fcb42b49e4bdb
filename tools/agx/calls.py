"""The calls whose kernels are measured. They run on the software Metal device."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial

DTYPES = ("float32", "float16", "bfloat16")
LENGTHS = (64, 128, 768, 1024, 2880, 4096, 8192, 16384)
ROWS, HEADS, SAMPLES = 512, 8, 4
GEMV_ROWS = (1, 4, 8)
PRODUCT_ROWS = (1, 4, 8, 16)  # of quantized products
MANY_ROWS = 64  # which take simdgroup matrices
DEPTHS = (4096, 2882)  # lines that are whole vectors, and not
OUTPUTS = 1024
IMAGES = (2, 16, 16)  # samples and positions
CHANNELS = (320, 1280, 130)  # of one threadgroup, of several, no whole vectors
GROUPS = 10
AXIS1_CHANNELS = (128, 1024, 4096)
BITS = (16, 8, 4)  # of weights; 16: those of x's dtype
# Lengths of heads, and how much of them is rotated: elements of a pair are in one thread, in two,
# or read again, one by one or not; in one SIMD-group, and in several.
ROTATED = ((8, 8), (64, 64), (96, 96), (80, 32), (34, 18), (128, 128), (256, 256), (512, 512))
ROTATED += ((768, 768), (1024, 512))


@dataclass(frozen=True)
class Call:
    """A call: what it is named in tables, whether CI has it, and what evaluates it."""

    name: str
    small: bool
    run: Callable[[], None]


def calls() -> Iterator[Call]:
    sizes = {"B": SAMPLES} | dict.fromkeys("NLK", ROWS // SAMPLES)
    of_heads = {"B": ROWS // HEADS, "H": HEADS, "K": HEADS}
    samples, *positions = IMAGES
    of_image = {"B": samples, "N": math.prod(positions)}
    for dtype, length in itertools.product(DTYPES, LENGTHS):
        for op, aligned in itertools.product(_NORMS, (True, False)):
            name = f"{op} {dtype} {length}{'' if aligned else ' unaligned'}"
            small = (
                aligned
                and dtype != "float16"
                and length in (128, 4096, 16384)
                and op in ("rms_norm", "layer_norm", "add_rms_norm")
            )
            rows = of_heads if op in ("head_rms_norm", "qk_norm") else {}
            of = _NORMS[op] or op, sizes | rows | {"D": length}, dtype, aligned
            yield from _both_ways(name, small, *of)
    for dtype, length in itertools.product(DTYPES, LENGTHS):
        for op in ("rms_norms", "l2_norms"):
            small = dtype == "bfloat16" and length == 4096 and op == "rms_norms"
            run = partial(_evaluate, op, sizes | {"D": length}, dtype)
            yield Call(f"{op} {dtype} {length}", small, run)
        name = f"rms_norms of four lengths {dtype} {length}"
        yield Call(name, False, partial(_norms_of_lengths, dtype, length))
    for dtype, (length, dims) in itertools.product(DTYPES, ROTATED):
        for op in _ROPES:
            small = dtype == "bfloat16" and length == 128 and op == "qk_norm_rope"
            of = sizes | {"H": HEADS, "K": HEADS, "D": length}
            run = partial(_evaluate, op, of, dtype, dims=dims)
            yield Call(f"{op} {dtype} {length} 0:{dims}", small, run)
    for dtype, channels in itertools.product(DTYPES, CHANNELS):
        for op, of in _IMAGE_NORMS.items():
            name = f"{op} {dtype} {channels}"
            small = dtype != "float16" and channels == 320 and op == "group_norm adjoining silu"
            options = {"num_groups": GROUPS} if op.startswith("group") else {}
            of = of or op, of_image | {"C": channels}, dtype
            yield from _both_ways(name, small, *of, **options)
    for dtype, channels in itertools.product(DTYPES, AXIS1_CHANNELS):
        for op in ("rms_norm axis 1", "layer_norm axis 1"):
            small = dtype == "bfloat16" and channels == 1024 and op.startswith("layer")
            of = op, of_image | {"D": channels}, dtype
            yield from _both_ways(f"{op} {dtype} {channels}", small, *of)
    for dtype in DTYPES:
        name = f"matmul {dtype} {MANY_ROWS}x{DEPTHS[0]}"
        yield Call(name, False, partial(_matmul, dtype, MANY_ROWS, DEPTHS[0], True))
    for dtype, rows, depth in itertools.product(DTYPES, GEMV_ROWS, DEPTHS):
        small = dtype == "bfloat16" and depth == DEPTHS[0]
        for way in ("lines", "columns"):
            name = f"matmul {dtype} {rows}x{depth} {way}"
            yield Call(name, small, partial(_matmul, dtype, rows, depth, way == "lines"))
        for bits, op in itertools.product(BITS, ("rms_norm_linear", "layer_norm_linear")):
            quantized = op == "rms_norm_linear" and depth % 64 == 0  # in groups of 64
            if bits == 16 or quantized:
                name = f"{op} {dtype} {rows}x{depth}{f' {bits} bits' if bits < 16 else ''}"
                run = partial(_linear, op, dtype, rows, depth, bits)
                yield Call(name, small and op == "rms_norm_linear", run)
    for dtype, rows, bits in itertools.product(DTYPES, PRODUCT_ROWS, (8, 4)):
        name = f"quantized_matmul {dtype} {rows}x{DEPTHS[0]} {bits} bits"
        yield Call(name, dtype == "bfloat16", partial(_quantized, dtype, rows, DEPTHS[0], bits))


def _both_ways(name, small, *of, **options) -> Iterator[Call]:
    for way, backward in (("", False), (" backward", True)):
        yield Call(name + way, small, partial(_evaluate, *of, backward=backward, **options))


# Names in tables of figures, and those of the table of ops.
_NORMS = {
    **dict.fromkeys(("rms_norm", "layer_norm", "add_rms_norm", "add_layer_norm")),
    "head_rms_norm": "rms_norm heads HD",
    "qk_norm": "rms_norms heads HD",
    "l2_norm": "l2_norm bounded",
    "norm_add_norm": None,
    "modulated_layer_norm": "layer_norm bare scale B1D",
    "silu_gated_rms_norm": "rms_norm gate silu",
    "gated_rms_norm_first": "rms_norm gate silu first",
    "gated_layer_norm": "add_layer_norm bare factor B1D scale B1D",
}
_ROPES = ("norm_rope", "norm_rope traditional", "norm_rope first")
_ROPES += ("qk_norm_rope", "qk_norm_rope traditional")
_IMAGE_NORMS = {
    "group_norm": None,
    "group_norm adjoining silu": "group_norm pytorch_compatible silu",
    "instance_norm": "instance_norm bare",
    "batch_norm training": "batch_norm BNC training",
    "batch_norm": "batch_norm BNC running",
}


def _array(shape, dtype, aligned=True):
    """Zeros; one that is not aligned begins an element into its buffer."""
    import mlx.core as mx

    if aligned:
        return mx.zeros(shape, getattr(mx, dtype))
    return mx.zeros(math.prod(shape) + 1, getattr(mx, dtype))[1:].reshape(shape)


def _norms_of_lengths(dtype, length):
    import mlx.core as mx

    import mlx_norms

    lengths = [length // by for by in (1, 2, 4, 4)]
    xs = [_array((ROWS, n), dtype) for n in lengths]
    mx.eval(mlx_norms.rms_norms(xs, [_array((n,), dtype) for n in lengths]))


def _evaluate(name, sizes, dtype, aligned=True, backward=False, **options):
    """Evaluates an op's results, or, with zeros as cotangents, its gradients."""
    import mlx.core as mx

    from mlx_norms._table import OPS

    results = OPS[name].ours(**options)
    arrays = [_array(OPS[name].shape(of, sizes), dtype, aligned) for of in OPS[name].inputs]
    mx.eval(arrays)
    outputs = results(*arrays)
    if not backward:
        mx.eval(outputs)
        return
    cotangents = [_array(output.shape, dtype, aligned) for output in outputs]
    mx.eval(cotangents)
    mx.eval(mx.vjp(results, arrays, cotangents)[1])


def _matmul(dtype, rows, depth, lines):
    import mlx.core as mx

    import mlx_norms

    x = _array((rows, depth), dtype)
    w = _array((OUTPUTS, depth), dtype).T if lines else _array((depth, OUTPUTS), dtype)
    mx.eval(mlx_norms.matmul(x, w))


def _linear(op, dtype, rows, depth, bits):
    import mlx.core as mx

    import mlx_norms

    weights = _array((OUTPUTS, depth), dtype)
    if bits < 16:
        weights = mx.quantize(weights, group_size=64, bits=bits)
    vectors = [_array((depth,), dtype)] * (2 if op.startswith("layer") else 1)
    mx.eval(getattr(mlx_norms, op)(_array((rows, depth), dtype), *vectors, weights))


def _quantized(dtype, rows, depth, bits):
    import mlx.core as mx

    import mlx_norms

    weight = mx.quantize(_array((OUTPUTS, depth), dtype), group_size=64, bits=bits)
    mx.eval(mlx_norms.quantized_matmul(_array((rows, depth), dtype), *weight, bits=bits))
