"""MLX's own Metal kernels in the simulator: right results, and the defects that they have.

The headers come from MLX's macOS wheel. Each test names the faults that MLX 0.32.4 has there, by
the text of their line; no other one may be reported.
"""

import shutil
from pathlib import Path

import numpy as np
import pytest

from macos import mlx_wheel
from metalsim import Library, address_spaces, bfloat16, rules

pytestmark = pytest.mark.instrument

KERNELS = "mlx/backend/metal/kernels"
ORDERS = (0, 1, 3)


@pytest.fixture(scope="module")
def include():
    """The wheel's include folder."""
    try:
        return mlx_wheel.fetch() / "include"
    except RuntimeError as error:
        pytest.skip(f"instrument missing: MLX's macOS wheel: {error}")


@pytest.fixture
def library(include):
    """Makes a library of MLX's headers and instantiations `(host name, kernel, arguments...)`."""
    if address_spaces.compiler() is None and shutil.which("g++") is None:
        pytest.skip("instrument missing: clang++ or g++")

    def make(headers, *instantiations):
        lines = [f'#include "{KERNELS}/{header}"' for header in ("utils.h", *headers.split())]
        lines += [f'instantiate_kernel("{n}", {", ".join(a)})' for n, *a in instantiations]
        text = "\n".join(lines) + "\n"
        return Library.from_source(text, name="mlx.metal", include=[include], check=2)

    return make


def random(*shape, dtype=np.float32):
    return np.random.default_rng(0).standard_normal(shape).astype(dtype)


def assert_close(got, want, tolerance=2e-5):
    np.testing.assert_allclose(got, want, rtol=tolerance, atol=tolerance)


def assert_faults(result, *known):
    """Each fault has a (kind, text of its line) of `known`, and each of these is reported."""
    found = set()
    for fault in result.faults:
        line = Path(fault.file).read_text().splitlines()[fault.line - 1]
        match = [(kind, text) for kind, text in known if fault.kind == kind and text in line]
        assert match, (fault, line)
        found |= set(match)
    assert found == set(known)


def floats(bits):
    return (bits.astype(np.uint32) << 16).view(np.float32)


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("columns", [5, 1000, 4096])
def test_softmax(library, columns, order):
    lib = library(
        "softmax.h",
        ("block", "softmax_single_row", "float"),
        ("looped", "softmax_looped", "float"),
        ("half", "softmax_single_row", "half", "float"),
        ("bfloat", "softmax_looped", "bfloat16_t", "float"),
    )
    x = 3 * random(3, columns)
    e = np.exp(x.astype(np.float64))
    want = e / e.sum(1, keepdims=True)
    group = -(-columns // 128) * 32
    for name, threads in (("block", group), ("looped", 1024)):
        y = np.zeros_like(x)
        args = {"in": x, "out": y, "axis_size": columns}
        assert_faults(lib.launch(name, args, groups=3, group=threads, out=["out"], order=order))
        assert_close(y, want, 1e-5)
    half = np.zeros(x.shape, np.float16)
    args = {"in": x.astype(np.float16), "out": half, "axis_size": columns}
    assert_faults(lib.launch("half", args, groups=3, group=group, out=["out"], order=order))
    assert_close(half, want, 1e-2)
    bits = np.zeros(x.shape, np.uint16)
    args = {"in": bfloat16(x), "out": bits, "axis_size": columns}
    assert_faults(lib.launch("bfloat", args, groups=3, group=1024, out=["out"], order=order))
    assert_close(floats(bits), want, 3e-2)


def test_looped_softmax_of_few_threads(library):
    """It reads 32 partial sums, however few SIMD-groups have written one."""
    lib = library("softmax.h", ("looped", "softmax_looped", "float"))
    x = random(1, 1000)
    args = {"in": x, "out": np.zeros_like(x), "axis_size": 1000}
    assert_faults(
        lib.launch("looped", args, groups=1, group=256),
        ("uninitialized threadgroup", "simd_max(local_max[simd_lane_id])"),
        ("uninitialized threadgroup", "simd_sum(local_normalizer[simd_lane_id])"),
    )


@pytest.mark.parametrize("order", ORDERS)
def test_logsumexp(library, order):
    lib = library(
        "logsumexp.h", ("block", "logsumexp", "float"), ("looped", "logsumexp_looped", "float")
    )
    x = 3 * random(3, 1000)
    for name, threads in (("block", 256), ("looped", 1024)):
        y = np.zeros(3, np.float32)
        args = {"in": x, "out": y, "axis_size": 1000}
        assert_faults(lib.launch(name, args, groups=3, group=threads, out=["out"], order=order))
        assert_close(y, np.log(np.exp(x.astype(np.float64)).sum(1)))


@pytest.mark.parametrize("order", ORDERS)
def test_reduce(library, order):
    lib = library(
        "atomic.h reduction/ops.h reduce.h",
        ("sum", "row_reduce_simple", "float", "float", "Sum<float>"),
        ("all", "all_reduce", "float", "float", "Sum<float>"),
    )
    x = random(10, 900)
    want = x.astype(np.float64).sum(1)
    for rows in (8, 10):
        y = np.zeros(rows, np.float32)
        args = {"in": x[:rows], "out": y, "reduction_size": 900, "out_size": rows}
        groups = (1, -(-rows // 4))
        result = lib.launch("sum", args, groups=groups, group=128, out=["out"], order=order)
        # Of 10 rows, the last two threadgroups do two in common, with the same sums.
        assert_faults(result, *[("device race", "out[i] = totals[i];")] * (rows == 10))
        assert_close(y, want[:rows], 1e-4)
    y = np.zeros(1, np.float32)
    args = {"in": x, "out": y, "in_size": 9000, "row_size": 9000}
    assert_faults(lib.launch("all", args, groups=1, group=256, out=["out"], order=order))
    assert_close(y, [want.sum()], 1e-3)


@pytest.mark.parametrize("order", ORDERS)
def test_scan(library, order):
    flags = [(inclusive, reverse) for inclusive in (True, False) for reverse in (True, False)]
    names = {flag: f"inclusive_{flag[0]}_reverse_{flag[1]}" for flag in flags}
    words = {True: "true", False: "false"}
    lib = library(
        "scan.h",
        *[
            (name, "contiguous_scan", "float", "float", "CumSum<float>", "4", words[i], words[r])
            for (i, r), name in names.items()
        ],
        ("strided", "strided_scan", "float", "float", "CumSum<float>", "4", "true", "false"),
    )
    x = random(3, 777)
    for (inclusive, reverse), name in names.items():
        y = np.zeros_like(x)
        args = {"in": x, "out": y, "axis_size": 777}
        result = lib.launch(name, args, groups=(1, 3), group=224, out=["out"], order=order)
        # 7 SIMD-groups write a sum, 32 lanes read one; what the others read is not used.
        assert_faults(
            result, ("uninitialized threadgroup", "simd_exclusive_scan(simdgroup_sums[simd_lane")
        )
        want = x.astype(np.float64)[:, :: -1 if reverse else 1]
        want = np.cumsum(want, 1) - (0 if inclusive else want)
        assert_close(y, want[:, :: -1 if reverse else 1], 1e-4)
    x = random(2, 50, 40)
    y = np.zeros_like(x)
    args = {"in": x, "out": y, "axis_size": 50, "stride": 40, "stride_blocks": 2}
    assert_faults(lib.launch("strided", args, groups=(1, 4), group=256, out=["out"], order=order))
    assert_close(y, x.astype(np.float64).cumsum(1), 1e-4)


@pytest.mark.parametrize("order", ORDERS)
def test_sort(library, order):
    lib = library(
        "sort.h",
        ("sort", "block_sort", "float", "float", "false", "128", "4"),
        ("argsort", "block_sort", "float", "uint32_t", "true", "128", "4"),
    )
    x = random(3, 500)
    sizes = {2: 500, 3: 1, 4: 1, 5: 500, 6: 500}
    for name, want in (("sort", np.sort(x)), ("argsort", np.argsort(x).astype(np.uint32))):
        y = np.zeros_like(want)
        result = lib.launch(
            name, {"inp": x, "out": y} | sizes, groups=(1, 3), group=128, out=["out"], order=order
        )
        assert_faults(result)
        np.testing.assert_array_equal(y, want)


@pytest.mark.parametrize("order", ORDERS)
def test_gemv(library, order):
    """Eight SIMD-groups per row: a barrier that lane 0 alone reaches, and mem_none at that."""
    shape = ("1", "8", "1", "32", "4", "4", "false", "false")
    lib = library("gemv.h", ("gemv", "gemv", "float", *shape))
    a, v = random(70, 200), random(200)
    y = np.zeros(70, np.float32)
    zero, one = np.zeros(1, np.int64), np.ones(1, np.int32)
    args = {0: a, 1: v, 2: v, 3: y, 4: 200, 5: 70, 6: 200, 7: 1, 8: 0, 9: 1, 10: one, 11: zero}
    args |= {12: zero, 13: zero, 14: 1}
    result = lib.launch("gemv", args, groups=18, group=(32, 8), out=["out_vec"], order=order)
    assert_faults(
        result,
        ("barrier after return", "threadgroup_barrier(mem_flags::mem_none);"),
        ("threadgroup race", "tgp_results[sgn * (blockM + TM) + tm]"),
        # The last two threadgroups do two rows in common.
        ("device race", "out_vec[out_row + tm] = static_cast<T>(result[tm]);"),
    )


GEMM_PARAMS = np.dtype(
    [(name, "i4") for name in ("m", "n", "k", "lda", "ldb", "ldd", "tiles_n", "tiles_m")]
    + [(name, "i8") for name in ("stride_a", "stride_b", "stride_d")]
    + [(name, "i4") for name in ("swizzle", "iterations", "batch_ndim")],
    align=True,
)
ADDMM_PARAMS = np.dtype(
    [("ldc", "i4"), ("fdc", "i4"), ("stride", "i8"), ("alpha", "f4"), ("beta", "f4")], align=True
)


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("m, n, k", [(64, 32, 48), (33, 65, 50)])
def test_steel_gemm(library, m, n, k, order):
    tile = ("32", "32", "16", "2", "2")
    lib = library(
        "steel/gemm/gemm.h steel/gemm/kernels/steel_gemm_fused.h",
        ("nn", "gemm", "float", *tile, "false", "false", "float"),
        ("nt", "gemm", "half", *tile, "false", "true", "float"),
    )
    a, b, c = random(m, k), random(k, n), random(m, n)
    tiles = -(-n // 32), -(-m // 32)
    aligned = {200: m % 32 == 0, 201: n % 32 == 0, 202: k % 16 == 0}
    options = {10: False, 100: False, 110: False} | aligned
    # The epilogue without C is built from its parameters, and then not used.
    unguarded = ("absent argument", "addmm_params->alpha, addmm_params->beta")

    def run(name, a, b, ldb, constants, **more):
        d = np.zeros((m, n), a.dtype)
        params = np.array([(m, n, k, k, ldb, n, *tiles, 0, 0, 0, 0, k // 16, 1)], GEMM_PARAMS)
        args = {"A": a, "B": b, "D": d, "params": params.tobytes()} | more
        keywords = dict(groups=tiles, group=(32, 2, 2), constants=constants)
        return lib.launch(name, args, out=["D"], order=order, **keywords), d

    result, d = run("nn", a, b, n, options)
    assert_faults(result, unguarded)
    assert_close(d, a.astype(np.float64) @ b, 1e-4)

    half, transposed = a.astype(np.float16), np.ascontiguousarray(b.T).astype(np.float16)
    result, d = run("nt", half, transposed, k, options)
    assert_faults(result, unguarded)
    assert_close(d, half.astype(np.float64) @ transposed.T.astype(np.float64), 2e-2)

    addmm = np.array([(n, 1, 0, 2, 0.5)], ADDMM_PARAMS).tobytes()
    result, d = run("nn", a, b, n, options | {100: True, 110: True}, C=c, addmm_params=addmm)
    if m % 32 == 0:
        assert_faults(result)
        assert_close(d, 2 * (a.astype(np.float64) @ b) + 0.5 * c, 1e-4)
    else:  # rows of C past the end are read
        assert_faults(result, ("out-of-bounds device", "c_elems[k] = C[offset_c + k * fdc];"))


@pytest.mark.parametrize("order", ORDERS)
def test_attention_vector(library, order):
    lib = library("sdpa_vector.h", ("sdpa", "sdpa_vector", "float", "64", "64"))
    heads, length, size = 2, 50, 64
    q, k, v = random(heads, 1, size), random(heads, length, size), random(heads, length, size)
    out = np.zeros_like(q)
    strides = {6: length * size, 7: size, 8: length * size, 9: size}
    args = {0: q, 1: k, 2: v, 3: out, 4: 1, 5: length, 10: size**-0.5} | strides
    result = lib.launch("sdpa", args, groups=heads, group=1024, out=["out"], order=order)
    assert_faults(result)
    scores = np.exp(q.astype(np.float64) @ k.transpose(0, 2, 1) * size**-0.5)
    assert_close(out, scores / scores.sum(-1, keepdims=True) @ v)


def headers(include):
    """All headers of kernels, but for those of Metal 4."""
    found = sorted((include / KERNELS).rglob("*.h"))
    assert len(found) > 50
    return [path for path in found if "nax" not in path.name]


def test_rules_are_silent(include):
    for path in headers(include):
        assert rules.check(path.read_text()) == [], path


@pytest.mark.slow
def test_address_spaces_are_clean(include):
    if address_spaces.compiler() is None:
        pytest.skip("instrument missing: clang++, for the address spaces of MSL")
    names = "softmax.h logsumexp.h gemv.h sort.h scan.h sdpa_vector.h binary.h copy.h quantized.h"
    for name in names.split():
        text = f'#include "{KERNELS}/utils.h"\n#include "{KERNELS}/{name}"\n'
        for generic in (False, True):
            found = address_spaces.check(text, [include], generic=generic)
            assert [d for d in found if d.space] == [], (name, generic)
