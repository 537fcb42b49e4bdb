"""For sanitizers.cuda: calls in which every CUDA kernel runs in each of its ways, on few rows.

    python tools sanitizers.cuda_cases [--device cpu] [--part K/N]

What cuda.py runs; each result is held against the oracle as well.
"""

import argparse
import importlib.util
import itertools
import os
from collections.abc import Callable, Iterator
from pathlib import Path

import mlx.core as mx

import mlx_norms
from battery import test_battery
from linear import test_linear_kernel
from matmul import test_matmul
from mlx_norms._table import OPS
from mlx_norms.ladders import LAYER_NORM
from parts import ALL, part
from rope import test_norm_rope
from sanitizers import parts, quantized_cases
from support import rope_case
from support.bits import assert_same_bits
from support.checks import check, check_gradients, check_outputs, check_with_gradients
from support.inputs import arguments, cotangents, normal
from support.layouts import LAYOUTS, strided_parameters
from support.linear_case import OPS as LINEAR_OPS
from support.norm_case import DTYPES, Norm
from support.norm_case import OPS as NORMS
from support.table import arrays_of, check_both_ways
from support.variant import ROOT


def _tests(path: str):
    """A file of tests by its path, where bench has a module by the folder's name."""
    spec = importlib.util.spec_from_file_location(Path(path).stem, ROOT / "tests" / path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


group_norms, group_transforms = map(
    _tests, ("group_norm/test_forward.py", "group_norm/test_transforms.py")
)
test_axis, test_gated = map(_tests, ("norm/test_axis.py", "norm/test_gated.py"))
F32, F16, BF16 = DTYPES
# Shorter than a vector, with and without tails, of one SIMD-group and of several, and looped.
LENGTHS = (
    *((1, F32), (33, F16), (128, BF16), (768, BF16), (1000, F32), (1025, F32), (4096, BF16)),
    *((8191, F16), (8192, F32), (16385, F32), (32771, BF16), (40001, F32)),
)


def cases() -> Iterator[tuple[str, Callable[[], None]]]:
    """Names, and what to run."""
    for op, (length, dtype) in itertools.product(NORMS, LENGTHS):
        rows = 5 if length < 8192 else 3
        yield f"{op}, {rows} rows of {length}", lambda: both_ways(Norm(op), (rows, length), dtype)
    for op in NORMS:
        yield f"{op}, many rows", lambda: both_ways(Norm(op), (517, 65), BF16)
        yield f"{op}, more rows than run at once", lambda: both_ways(Norm(op), (2200, 256), F16)
        yield f"{op}, a tail in each of many rows", lambda: both_ways(Norm(op), (2200, 65), F32)
        yield f"{op}, another dtype of weight", lambda: both_ways(Norm(op), (3, 130), BF16, F32)
        yield f"{op}, offset", lambda: both_ways(Norm(op, weight_offset=1.0), (3, 65), F16)
        yield f"{op}, late, to float32", lambda: late(op)
        yield f"{op}, without parameters", lambda: without_parameters(op)
        yield f"{op}, strided parameters", lambda: parameters_apart(op)
        yield f"{op}, donated", lambda: donated(op)
        if Norm(op).adds:
            yield f"{op}, clamped", lambda: clamped(op)
            yield f"{op}, no cotangent of the sum", lambda: no_cotangent_of_the_sum(op)
        for layout, length in itertools.product(LAYOUTS, (129, 1024)):
            yield f"{op}, {layout.__name__}, {length}", lambda: strided(op, layout, length)
        yield f"{op}, more axes than a layout holds", lambda: gathered(op)
    for i, of in enumerate(filter(is_norm, OPS.values())):
        for length, dtype in LENGTHS[1 + i % 5 :: 5]:
            yield f"{of}, {length}", lambda: of_table(of, length, dtype)
    for length, dtype in LENGTHS:
        yield f"sum times one element, {length}", lambda: factor_of_sum(length, dtype)
    of = OPS["norm_add_norm"]
    yield f"{of}, donated", lambda: test_battery.test_donation(of)
    for layout in LAYOUTS:
        yield f"{of}, {layout.__name__}", lambda: test_battery.test_layouts(of, layout)
    for shape in group_norms.SHAPES:
        yield f"group_norm, {shape}", lambda: group_norms.test_group_norm(shape)
        yield f"batch_norm, {shape}", lambda: group_norms.test_batch_norm(shape)
    yield "group_norm, views", group_transforms.test_views
    yield "gate, groups", lambda: test_gated.test_groups("after")
    for op in test_axis.OPS:
        yield f"{op}, channels", lambda: test_axis.test_every_size(op)
        for channels, inner in test_axis.MANY_CHANNELS:
            yield (
                f"{op}, {channels} channels",
                lambda: test_axis.test_more_channels_than_registers_hold(op, channels, inner),
            )
    yield "clusters", lambda: both_ways(Norm("layer_norm"), (4100, 1032), F32)
    for traditional, first in itertools.product((False, True), repeat=2):
        for d, dims in ((64, 64), (96, 96), (80, 32), (33, 18)):
            options = dict(dims=dims, traditional=traditional, rope_first=first)
            yield f"norm_rope, {d}, {options}", lambda: rope(d, options)
    yield "qk_norm_rope, packed", test_norm_rope.test_strided
    for rung in LAYER_NORM[:-1] if mx.default_device() == mx.gpu else ():
        # A thread that adds up a long row alone loses digits.
        for length in (33, 768) if rung.name.startswith("naive") else (33, 768, 8193, 65536):
            yield f"layer_norm by {rung.name}, {length}", lambda: climb(rung, length)
    for rung in test_matmul.RUNGS if mx.default_device() == mx.gpu else ():
        yield f"sgemm, {rung}, sizes", lambda: test_matmul.test_sizes(rung)
        yield f"sgemm, {rung}, batches", lambda: test_matmul.test_batches(rung)
    for op in LINEAR_OPS if mx.default_device() == mx.gpu else ():
        yield f"{op}, shared rows", lambda: test_linear_kernel.test_rows_that_simd_groups_share(op)
        for kind in test_linear_kernel.KINDS:
            name = f"{op}, {kind or 'dense'}"
            yield name, lambda: test_linear_kernel.test_weights_that_are_not_aligned(op, kind)
            yield (
                f"{name}, any rows",
                lambda: test_linear_kernel.test_a_row_has_the_same_bits_in_any_batch(op, kind),
            )
    kernels = ("simdgroup_blocked", "gemv") if mx.default_device() == mx.gpu else ()
    for kernel, dtype in itertools.product(kernels, test_matmul.DTYPES):
        note = f"matmul, {kernel}, {dtype}"
        yield f"{note}, stored", lambda: test_matmul.test_plain_and_transposed(kernel, dtype)
        yield f"{note}, batches", lambda: test_matmul.test_products_of_batches(kernel, dtype)
        if kernel == "gemv":
            yield f"{note}, tiles", lambda: tiles(dtype)
    yield from quantized_cases.cases()


def is_norm(op):
    """What is patched has the kernels of what it stands for; products have cases of their own."""
    return not any(word in op.name for word in ("matmul", "linear", "patched"))


def of_table(op, length, dtype):
    rows = dict(B=5 if length < 8192 else 3, N=1, L=1, H=4 if length < 1000 else 2, K=1)
    check_both_ways(op, arrays_of(op, dtype, **rows, D=length, C=length))


def both_ways(norm, shape, dtype, weight_dtype=None):
    others = {"weight": weight_dtype} if weight_dtype else None
    check_with_gradients(norm, arguments(norm, shape, dtype, others=others))


def climb(rung, length):
    norm = Norm("layer_norm", rung=rung.name)
    for dtype in rung.dtypes:
        check(norm, arguments(norm, (5, length), dtype))


def tiles(dtype):
    for stored in ("lines", "columns"):
        for a, b in test_matmul.products_of_tiles(stored, dtype):
            test_matmul.check("gemv", a, b, stored)


def late(op):
    norm = Norm(op, rounding="late", dtype=F32)
    check(norm, arguments(norm, (3, 770), BF16))


def without_parameters(op):
    norm = Norm(op)
    check_with_gradients(norm, arguments(norm, (3, 257), F16, without=("weight", "bias")))


def parameters_apart(op):
    norm = Norm(op)
    arrays = arguments(norm, (5, 257), BF16)
    check_with_gradients(norm, arrays | strided_parameters(arrays))


def donated(op):
    norm = Norm(op)
    arrays = arguments(norm, (5, 1024), BF16)
    temporary = {name: a * 1 if name in ("x", "residual") else a for name, a in arrays.items()}
    outputs = norm(temporary)
    del temporary
    check_outputs(norm, arrays, outputs)


def clamped(op):
    norm = Norm(op, clamp=True)
    check_with_gradients(norm, arguments(norm, (3, 257), F16, mean=4e4, std=2e4))


def factor_of_sum(length, dtype):
    x, residual = (normal((5, length), dtype, seed=seed) for seed in ("x", "residual"))
    factor = normal((1,), dtype, seed="factor")
    with mlx_norms.patched():
        h = (residual + x) * factor
        n = mx.fast.rms_norm(h, None, 1e-5)
        mx.eval(h, n)
        assert mlx_norms.report().fused == 1
    assert_same_bits(h, (residual + x) * factor)
    assert_same_bits(n, mlx_norms.rms_norm(h, None, 1e-5))


def no_cotangent_of_the_sum(op):
    norm = Norm(op)
    arrays = arguments(norm, (3, 300), F32)
    cotangent = cotangents(norm, arrays)[0]

    def loss(*values):
        y = norm(dict(zip(arrays, values, strict=True)))[0]
        return (y * cotangent).sum()

    gradients = mx.grad(loss, argnums=list(range(len(arrays))))(*arrays.values())
    check_gradients(norm, arrays, [cotangent, None], gradients)


def strided(op, layout, length):
    norm = Norm(op)
    arrays = arguments(norm, (5, length), BF16)
    arrays |= {name: layout(arrays[name]) for name in arrays.keys() & {"x", "residual"}}
    check_with_gradients(norm, arrays, [layout(c) for c in cotangents(norm, arrays)])


def gathered(op):
    norm = Norm(op)
    arrays = arguments(norm, (2, 2, 3, 2, 2, 300), BF16)
    check_with_gradients(norm, arrays | {"x": apart(arrays["x"])})


def apart(x):
    """No two axes of rows make one."""
    big = mx.full(tuple(2 * n for n in x.shape), float("nan"), x.dtype)
    every_second = (slice(None, None, 2),) * x.ndim
    big[every_second] = x
    mx.eval(big)
    return big[every_second]


def rope(d, options):
    q, k, q_weight, k_weight = rope_case.tensors((2, 5, 6, d), BF16, kv_heads=2)
    case = rope_case.Case(options, gpu=mx.default_device() == mx.gpu)
    v = normal((2, 5, 2, d), BF16, seed=5)
    y = rope_case.qk_norm_rope(q, k, q_weight, k_weight, v=v, **options)
    case.truth(q, q_weight).check(y[0])
    case.truth(k, k_weight).check(y[1])
    case.truth(v, rotates=False).check(y[2])


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", choices=("gpu", "cpu"), default="gpu")
    parser.add_argument("--part", type=part, default=ALL, metavar="K/N", help="a part of the cases")
    args = parser.parse_args()
    os.environ["MLX_NORMS_SELF_CHECK"] = "0"
    mx.set_default_device(mx.cpu if args.device == "cpu" else mx.gpu)
    mx.set_cache_limit(0)  # memory that was freed is not to be read again unseen
    parts.run(cases, args.part)


if __name__ == "__main__":
    main()
