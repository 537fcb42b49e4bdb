"""The Metal simulator: launches, counts, schedules, function constants, memory, errors."""

import functools
import os
import shutil
import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import pytest

from metalsim import CompileError, Library, Memory, SourceError

pytestmark = pytest.mark.instrument

ORDERS = range(6)
RNG = np.random.default_rng(7)

ROWS = """
#include <metal_stdlib>
using namespace metal;

inline float row_sum(float x, threadgroup float* partial, uint simd, uint lane, uint simds) {
  x = simd_sum(x);
  if (lane == 0) {
    partial[simd] = x;
  }
  threadgroup_barrier(mem_flags::mem_threadgroup);
  return simd_sum(lane < simds ? partial[lane] : 0);
}

template <typename T, typename V>
[[kernel]] void rms(
    device const T* x [[buffer(0)]],
    device T* y [[buffer(1)]],
    constant const uint& columns [[buffer(2)]],
    constant float& eps,
    uint row [[threadgroup_position_in_grid]],
    uint t [[thread_position_in_threadgroup]],
    uint simd [[simdgroup_index_in_threadgroup]],
    uint lane [[thread_index_in_simdgroup]],
    uint simds [[simdgroups_per_threadgroup]]) {
  threadgroup float partial[32];
  uint n = columns;
  uint4 raw = *(device const uint4*)(x + row * n + t * 8);
  V low = as_type<V>(raw.xy), high = as_type<V>(raw.zw);
  float sum = 0;
  for (int i = 0; i < 4; i++) {
    sum += float(low[i]) * float(low[i]) + float(high[i]) * float(high[i]);
  }
  sum = row_sum(sum, partial, simd, lane, simds);
  float scale = metal::precise::rsqrt(sum / n + eps);
  for (int i = 0; i < 4; i++) {
    low[i] = T(float(low[i]) * scale);
    high[i] = T(float(high[i]) * scale);
  }
  raw = uint4(as_type<uint2>(low), as_type<uint2>(high));
  *(device uint4*)(y + row * n + t * 8) = raw;
}

template [[host_name("rms_half")]] [[kernel]] decltype(rms<half, half4>) rms<half, half4>;
template [[host_name("rms_bfloat")]] [[kernel]] void rms<bfloat, vec<bfloat, 4>>(
    device const bfloat*, device bfloat*, constant const uint&, constant float&,
    uint, uint, uint, uint, uint);
"""

SMALL = """
#include <metal_stdlib>
using namespace metal;

constant bool doubled [[function_constant(0)]];
constant float offset [[function_constant(3)]];
constant int2 pair [[function_constant(4)]];
constant float either = is_function_constant_defined(offset) ? offset : -1.0f;

kernel void constants(device float* y, uint i [[thread_position_in_grid]]) {
  y[i] = (doubled ? 2 : 1) * float(i) + either + pair.x * pair.y;
}

kernel void optional(
    device const float* x [[buffer(0)]],
    device const float* w [[buffer(1), function_constant(doubled)]],
    constant float& scale [[buffer(2), function_constant(doubled)]],
    device float* y [[buffer(3)]],
    uint i [[thread_position_in_grid]]) {
  y[i] = doubled ? x[i] * w[i] * scale : x[i];
}

kernel void copy(
    device const float* x,
    device float* y,
    constant uint& n,
    uint i [[thread_position_in_grid]]) {
  if (i < n) {
    y[i] = x[i];
  }
}

kernel void scale_rows(
    device const uchar* x,
    device half* y,
    constant half& by,
    uint2 at [[thread_position_in_grid]],
    uint2 size [[threads_per_grid]]) {
  y[at.y * size.x + at.x] = half(x[at.y * size.x + at.x]) * by;
}

kernel void argument(
    device float* y,
    threadgroup float* scratch [[threadgroup(0)]],
    uint t [[thread_index_in_threadgroup]],
    uint n [[threads_per_threadgroup]]) {
  scratch[t] = y[t];
  threadgroup_barrier(mem_flags::mem_threadgroup);
  y[t] = scratch[n - 1 - t];
}

// Without the barrier, what is read depends on the schedule.
kernel void racy(device float* y, uint t [[thread_position_in_threadgroup]]) {
  threadgroup float last[1];
  last[0] = t;
  y[t] = simd_sum(1.0f) * last[0];
}

kernel void sizes(
    device uint* y,
    uint i [[thread_position_in_grid]],
    uint t [[thread_position_in_threadgroup]],
    uint n [[threads_per_threadgroup]],
    uint nominal [[dispatch_threads_per_threadgroup]],
    uint all [[threads_per_grid]],
    uint groups [[threadgroups_per_grid]]) {
  y[i * 5 + 0] = t;
  y[i * 5 + 1] = n;
  y[i * 5 + 2] = nominal;
  y[i * 5 + 3] = all;
  y[i * 5 + 4] = groups;
}

[[kernel, max_total_threads_per_threadgroup(64)]] void few(device float* y [[buffer(0)]]) {
  y[0] = 1;
}

kernel void deep(device float* y, constant int& n, uint i [[thread_position_in_grid]]) {
  float x[40000];
  for (int k = 0; k < n; k++) {
    x[k] = y[k % 4];
  }
  y[i] = x[n - 1];
}
"""


@pytest.fixture(scope="module", params=["clang++-16", "g++"])
def cxx(request):
    if not shutil.which(request.param):
        pytest.skip(f"instrument missing: {request.param}")
    return request.param


@functools.cache
def library(text, check, cxx):
    return Library.from_source(text, check=check, cxx=cxx)


@pytest.fixture(scope="module")
def small(cxx):
    return library(SMALL, 2, cxx)


def copied(n=64):
    return {"x": RNG.normal(size=n).astype(np.float32), "y": np.zeros(n, np.float32), "n": n}


def bits_of_bfloat(x):
    return (np.asarray(x, np.float32).view(np.uint32) >> 16).astype(np.uint16)


def from_bfloat(bits):
    return (bits.astype(np.uint32) << 16).view(np.float32)


@pytest.mark.parametrize("check", [0, 1, 2])
@pytest.mark.parametrize("columns", [256, 1536, 8192])
def test_rows(cxx, check, columns):
    rows, threads = 3, columns // 8
    x = RNG.normal(size=(rows, columns)).astype(np.float16)
    y = np.zeros_like(x)
    lib = library(ROWS, check, cxx)
    args = {"x": x, "y": y, "columns": columns, "eps": 1e-5}
    result = lib.launch("rms_half", args, groups=rows, group=threads, out=["y"])
    wide = x.astype(np.float64)
    want = wide / np.sqrt(np.mean(wide**2, axis=1, keepdims=True) + 1e-5)
    np.testing.assert_allclose(y, want, rtol=2**-10, atol=2**-24)
    assert result.faults == []
    assert (result.threads, result.threadgroups) == (rows * threads, rows)
    assert result.barriers == rows
    assert result.simd_ops == rows * 2 * (threads // 32)
    assert result.threadgroup_bytes == 32 * 4
    if check:
        assert result.bytes["x"] == (x.nbytes, 0)
        assert result.bytes["y"] == (0, y.nbytes)
        assert result.bytes["columns"] == (rows * threads * 4, 0)
    else:
        assert set(result.bytes.values()) == {(0, 0)}


def test_schedules_of_a_clean_kernel_agree(cxx):
    x = bits_of_bfloat(RNG.normal(size=(5, 2048)))
    seen = set()
    for order in ORDERS:
        y = np.zeros_like(x)
        args = {"x": x, "y": y, "columns": 2048, "eps": 1e-5}
        lib = library(ROWS, 1, cxx)
        result = lib.launch("rms_bfloat", args, groups=5, group=256, order=order)
        assert result.faults == []
        seen.add(y.tobytes())
    assert len(seen) == 1
    wide = from_bfloat(x).astype(np.float64)
    want = wide / np.sqrt(np.mean(wide**2, axis=1, keepdims=True) + 1e-5)
    np.testing.assert_allclose(from_bfloat(y), want, rtol=2**-7)


def test_schedules_differ(cxx):
    fast, checked = library(SMALL, 0, cxx), library(SMALL, 1, cxx)
    seen = set()
    for order in ORDERS:
        y = np.zeros(96, np.float32)
        fast.launch("racy", {"y": y}, groups=1, group=96, order=order)
        seen.add(y.tobytes())
        # The race is found whatever the schedule makes of it.
        kinds = {f.kind for f in checked.launch("racy", {"y": y}, grid=96, group=96).faults}
        assert kinds == {"threadgroup race"}
    assert len(seen) > 1


def test_a_schedule_repeats(cxx):
    outputs = []
    for _ in range(2):
        y = np.zeros(96, np.float32)
        library(SMALL, 0, cxx).launch("racy", {"y": y}, grid=96, group=96, order=5)
        outputs.append(y.tobytes())
    assert outputs[0] == outputs[1]


@pytest.mark.parametrize(
    "constants, want",
    [
        ({}, np.arange(4.0) - 1),
        ({"doubled": True}, 2 * np.arange(4.0) - 1),
        ({0: 1, 3: 0.5}, 2 * np.arange(4.0) + 0.5),
        ({"offset": 2, 4: (3, 5)}, np.arange(4.0) + 17),
    ],
)
def test_function_constants(small, constants, want):
    y = np.zeros(4, np.float32)
    small.launch("constants", {"y": y}, grid=4, group=4, constants=constants)
    np.testing.assert_array_equal(y, want)


@pytest.mark.parametrize("value", [(1, 2, 3), (1, 2**40), (1, 0.5)])
def test_function_constant_of_another_type(small, value):
    with pytest.raises(TypeError, match="pair"):
        small.launch("constants", {0: np.zeros(1, np.float32)}, grid=1, constants={"pair": value})


def test_unknown_function_constant(small):
    with pytest.raises(ValueError, match="no function constant 'tripled'"):
        small.launch("constants", {0: np.zeros(1, np.float32)}, grid=1, constants={"tripled": 1})


def test_optional_buffer_that_is_left_out(cxx):
    for check in (0, 1, 2):
        x, y = np.arange(8, dtype=np.float32), np.zeros(8, np.float32)
        lib = library(SMALL, check, cxx)
        result = lib.launch("optional", {"x": x, "y": y}, grid=8, group=8)
        assert result.faults == []
        np.testing.assert_array_equal(y, x)


def test_optional_buffer_that_is_bound(small):
    x, y = np.arange(8, dtype=np.float32), np.zeros(8, np.float32)
    args = {"x": x, "y": y, "w": x + 1, "scale": 0.5}
    small.launch("optional", args, grid=8, group=8, constants={"doubled": True})
    np.testing.assert_array_equal(y, x * (x + 1) / 2)


def test_optional_buffer_that_is_missing(small):
    args = {0: np.zeros(1, np.float32), 3: np.zeros(1, np.float32), 2: 1.0}
    with pytest.raises(ValueError, match=r"buffer 'w' \(1\) is not bound"):
        small.launch("optional", args, grid=1, constants={"doubled": True})


def test_grid_that_is_no_multiple_of_the_group(small):
    y = np.zeros((50, 5), np.uint32)
    result = small.launch("sizes", {"y": y}, grid=50, group=32, out=["y"])
    assert result.faults == [] and result.threads == 50 and result.threadgroups == 2
    inside = np.arange(50) < 32
    np.testing.assert_array_equal(y[:, 0], np.arange(50) % 32)
    np.testing.assert_array_equal(y[:, 1], np.where(inside, 32, 18))
    np.testing.assert_array_equal(y[:, 2:], np.broadcast_to([32, 50, 2], (50, 3)))


def test_two_dimensions_and_narrow_types(small):
    x = RNG.integers(0, 255, size=(6, 10)).astype(np.uint8)
    y = np.zeros((6, 10), np.float16)
    result = small.launch("scale_rows", {"x": x, "y": y, "by": 0.5}, grid=(10, 6), group=(4, 2))
    np.testing.assert_array_equal(y, x / 2)
    assert result.bytes == {"x": (60, 0), "y": (0, 120), "by": (120, 0)}


def test_threadgroup_argument(small):
    y = np.arange(64, dtype=np.float32)
    result = small.launch("argument", {"y": y}, grid=64, group=64, tg={0: 256})
    np.testing.assert_array_equal(y, np.arange(64)[::-1])
    assert result.faults == [] and result.threadgroup_bytes == 256
    result = small.launch("argument", {"y": y}, grid=64, group=64, tg={0: 128})
    assert {(f.kind, f.buffer) for f in result.faults} == {("out-of-bounds threadgroup", "scratch")}
    with pytest.raises(ValueError, match="'scratch'"):
        small.launch("argument", {"y": y}, grid=64, group=64)


def test_memory_with_offset_and_aliasing(small):
    whole = np.arange(48, dtype=np.float32)
    at, size = whole.ctypes.data, whole.nbytes
    args = {
        "x": Memory(at, size, offset=64),
        "y": Memory(at, size, offset=128, written=(128, 192)),
        "n": 16,
    }
    result = small.launch("copy", args, grid=16, group=16)
    assert result.faults == []
    assert result.bytes["x"] == result.bytes["y"] == (64, 64)
    np.testing.assert_array_equal(whole[32:], np.arange(16, 32))
    np.testing.assert_array_equal(whole[:32], np.arange(32))


def test_array_bound_twice(small):
    x = np.arange(16, dtype=np.float32)
    result = small.launch("copy", {"x": x, "y": x, "n": 16}, grid=16, group=16)
    assert result.faults == []
    np.testing.assert_array_equal(x, np.arange(16))


IN_ORDER = """kernel void in_order(device const float* x, device float* y, constant uint& n) {
  for (uint i = 0; i < n; ++i) {
    y[i] = x[i];
  }
}
"""


def test_reads_of_what_another_argument_has_written(cxx):
    """By one thread, so that nothing races."""
    for check in (1, 2, 2):
        lib = library(IN_ORDER, check, cxx)
        whole = np.arange(32, dtype=np.float32)
        args = {name: Memory(whole.ctypes.data, whole.nbytes) for name in "xy"}
        assert lib.launch("in_order", args | {"n": 32}, grid=1).faults == []  # reads come first
        args["y"] = Memory(whole.ctypes.data, whole.nbytes, offset=64)
        assert lib.launch("in_order", args | {"n": 16}, grid=1).faults == []  # two halves
        np.testing.assert_array_equal(whole, np.tile(np.arange(16), 2))

        args["y"] = Memory(whole.ctypes.data, whole.nbytes, offset=16)
        faults = lib.launch("in_order", args | {"n": 28}, grid=1).faults
        np.testing.assert_array_equal(whole, np.tile(np.arange(4), 8))
        if check == 1:
            assert faults == []
            continue
        (fault,) = faults
        assert (fault.kind, fault.buffer, fault.line) == ("aliased read", "x", 3)
        assert fault.message == "byte 16 of 'x' is read and was written through 'y'"
        assert fault.count == 24


def test_past_the_end_of_a_buffer_that_is_bound_twice(cxx):
    lib = library(IN_ORDER, 2, cxx)
    whole = np.zeros(1 << 16, np.float32)
    size = whole.nbytes
    args = {"x": Memory(whole.ctypes.data, size), "y": Memory(whole.ctypes.data, size, offset=16)}
    faults = lib.launch("in_order", args | {"n": 1 << 16}, grid=1).faults
    (fault,) = (f for f in faults if f.kind == "out-of-bounds device")
    assert fault.buffer == "y"
    assert f"byte {size - 16} of 'y', which has {size - 16}" in fault.message


def test_written_bytes_of_a_memory(small):
    args = copied(16)
    y = np.zeros(32, np.float32)
    args["y"] = Memory(y.ctypes.data, y.nbytes, written=(0, 80))
    (fault,) = small.launch("copy", args, grid=16, group=16).faults
    assert (fault.kind, fault.buffer) == ("unwritten output", "y")
    assert "16 of 80 bytes" in fault.message and "byte 64" in fault.message


def test_uninitialized_memory(small):
    args = copied()
    x = args["x"]
    args["x"] = Memory(x.ctypes.data, x.nbytes, initialized=False)
    (fault,) = small.launch("copy", args, grid=64, group=64).faults
    assert (fault.kind, fault.buffer, fault.count) == ("uninitialized device", "x", 64)


@pytest.mark.parametrize("address", [1, 4, 9])
def test_a_buffer_begins_on_a_page(cxx, address):
    """The copy is aligned as Metal's buffers are, whatever the address of the original."""
    raw = np.zeros(4096 + address, np.uint8)
    raw[address:] = RNG.integers(0, 255, size=4096)
    x = Memory(raw.ctypes.data + address, 4096)
    y = np.zeros(2048, np.float16)
    lib = library(ROWS, 2, cxx)
    args = {"x": x, "y": y, "columns": 2048, "eps": 1.0}
    assert lib.launch("rms_half", args, groups=1, group=256, out=["y"]).faults == []


def test_array_that_is_not_contiguous(small):
    args = copied()
    whole = np.zeros((64, 2), np.float32)
    args["y"] = whole[:, 1]
    small.launch("copy", args, grid=64, group=64, out=["y"])
    np.testing.assert_array_equal(whole[:, 1], args["x"])
    assert not whole[:, 0].any()


def test_guard_page(cxx):
    args = copied(1024)
    args["n"] = 2048
    for check in (0, 1):
        result = library(SMALL, check, cxx).launch("copy", args, grid=2048, group=256)
        fault = result.faults[0]
        assert fault.kind == "out-of-bounds device" and fault.buffer == "x"
        assert SMALL.splitlines()[fault.line - 1].strip() == "y[i] = x[i];"
        assert fault.thread == 0 and fault.threadgroup == (4, 0, 0)


def test_write_behind_the_end_without_checks(cxx):
    x, y = np.ones(64, np.float32), np.zeros(63, np.float32)
    args = {"x": x, "y": y, "n": 64}
    (fault,) = library(SMALL, 0, cxx).launch("copy", args, grid=64, group=64).faults
    assert (fault.kind, fault.buffer) == ("out-of-bounds device", "y")


def test_private_memory_that_overflows(cxx):
    y = np.ones(4, np.float32)
    lib = library(SMALL, 0, cxx)
    (fault,) = lib.launch("deep", {"y": y, "n": 39999}, grid=1, group=1).faults
    assert fault.kind == "access violation" and "private memory" in fault.message
    assert lib.launch("copy", copied(), grid=64, group=64).faults == []


@pytest.mark.parametrize("kernel, group, limit", [("few", 65, 64), ("copy", 1025, 1024)])
def test_too_many_threads(small, kernel, group, limit):
    args = copied() if kernel == "copy" else {"y": np.zeros(1, np.float32)}
    result = small.launch(kernel, args, groups=1, group=group)
    (fault,) = result.faults
    assert fault.kind == "thread limit" and f"limit is {limit}" in fault.message
    assert result.threads == 0


def test_kernels_and_parameters(cxx):
    lib = library(ROWS, 0, cxx)
    assert lib.kernels() == ["rms_bfloat", "rms_half"]
    assert [line.split(":")[0] for line in lib.parameters("rms_half")] == [
        *("buffer 0", "buffer 1", "buffer 2", "buffer 3")
    ]


def test_calls_of_one_function_are_two_places(cxx):
    source = """
    #include <metal_stdlib>
    using namespace metal;
    void wait() { threadgroup_barrier(mem_flags::mem_threadgroup); }
    float total(float x) { return simd_sum(x); }
    struct Sum { float of(float x) thread { return total(x); } };
    kernel void apart(device float* y, uint t [[thread_position_in_grid]]) {
      if (t < 32) { wait(); }
      else { wait(); }
      Sum sum;
      y[t] = t % 32 < 16 ? sum.of(1) : total(1);
    }
    kernel void together(device float* y, uint t [[thread_position_in_grid]]) {
      float x = 0;
      for (int i = 0; i < 3; i++) { wait(); x += total(i); }
      Sum sum;
      y[t] = x + sum.of(1);
    }
    """
    lib = library(source, 1, cxx)
    y = np.zeros(64, np.float32)
    faults = lib.launch("apart", {"y": y}, grid=64, group=64).faults
    assert [(f.kind, f.line) for f in faults] == [("barrier divergence", 4), ("SIMD divergence", 5)]
    assert "called at 8" in faults[0].message and "called at 9" in faults[0].message
    assert (y == 16).all()
    assert lib.launch("together", {"y": y}, grid=64, group=64).faults == []
    assert (y == 128).all()


def test_division_by_zero(cxx):
    source = "kernel void k(device int* y) { y[0] = 5 / y[1]; }"
    y = np.array([3, 0], np.int32)
    (fault,) = library(source, 0, cxx).launch("k", {"y": y}, grid=1).faults
    assert (fault.kind, fault.line) == ("division by zero", 1)
    assert y[0] == 3


def test_reference_to_an_array(cxx):
    source = "kernel void k(constant int (&x)[3], device int* y) { y[0] = x[0] + x[2]; }"
    y = np.zeros(1, np.int32)
    args = {"x": np.array([1, 2, 3], np.int32), "y": y}
    assert library(source, 1, cxx).launch("k", args, grid=1).faults == []
    assert y[0] == 4


def test_struct_counts_its_bytes(cxx):
    source = """
    struct Five { float v[5]; };
    kernel void k(device const Five* x, device Five* y, uint i [[thread_position_in_grid]]) {
      y[i] = x[i];
    }
    """
    x, y = RNG.normal(size=(8, 5)).astype(np.float32), np.zeros((8, 5), np.float32)
    result = library(source, 2, cxx).launch("k", {"x": x, "y": y}, grid=8, out=["y"])
    assert result.faults == [] and result.bytes == {"x": (160, 0), "y": (0, 160)}
    np.testing.assert_array_equal(x, y)


def test_compilers_agree():
    if not (shutil.which("clang++-16") and shutil.which("g++")):
        pytest.skip("instrument missing: clang++-16 and g++")
    x = bits_of_bfloat(RNG.normal(size=(2, 1024)))
    outputs = set()
    for cxx in ("clang++-16", "g++"):
        for check in (0, 1):
            y = np.zeros_like(x)
            args = {"x": x, "y": y, "columns": 1024, "eps": 1e-5}
            library(ROWS, check, cxx).launch("rms_bfloat", args, groups=2, group=128)
            outputs.add(y.tobytes())
    assert len(outputs) == 1


def test_libraries_have_constants_of_their_own(cxx):
    source = """
    constant int {of} [[function_constant(0)]];
    constant int twice = 2 * {of};
    kernel void k(device int* y) {{ y[0] = twice; }}
    """
    libraries = [library(source.format(of=of), 0, cxx) for of in ("first", "second")]
    for number, lib in enumerate(libraries):
        y = np.zeros(1, np.int32)
        lib.launch("k", {"y": y}, groups=1, group=1, constants={0: 21 + number})
        assert y[0] == 2 * (21 + number)


def test_file_with_includes_and_macros(tmp_path, cxx):
    (tmp_path / "inner").mkdir()
    (tmp_path / "inner" / "add.h").write_text("inline float add(float a) { return a + STEP; }\n")
    (tmp_path / "beside.h").write_text('#include "add.h"\n')
    (tmp_path / "k.metal").write_text(
        '#include <metal_stdlib>\n#include "beside.h"\n'
        "kernel void k(device float* y, uint i [[thread_position_in_grid]]) {\n"
        "  y[i + AT] = add(i);\n}\n"
    )
    folders = [tmp_path / "inner"]
    defines = ["STEP=3", "AT=0"]
    lib = Library(tmp_path / "k.metal", folders, defines, check=1, cxx=cxx)
    y = np.zeros(4, np.float32)
    assert lib.launch("k", {"y": y}, grid=4, group=4).faults == []
    np.testing.assert_array_equal(y, np.arange(4) + 3)
    lib = Library(tmp_path / "k.metal", folders, ["STEP=3", "AT=1"], check=1, cxx=cxx)
    (fault,) = lib.launch("k", {"y": y}, grid=4, group=4).faults
    assert (fault.file, fault.line) == (str(tmp_path / "k.metal"), 4)


def test_host_names_through_an_alias(cxx):
    """As in ggml's kernels: the type of one instantiation serves all."""
    source = """
    template <typename T> kernel void fill(device uchar* y) { *(device T*)y = 7; }
    typedef decltype(fill<float>) fill_t;
    template [[host_name("fill_float")]] kernel fill_t fill<float>;
    template [[host_name("fill_int")]] [[kernel]] fill_t fill<int>;"""
    lib = Library.from_source(source, check=1, cxx=cxx)
    assert lib.kernels() == ["fill_float", "fill_int"]
    y = np.zeros(1, np.int32)
    assert lib.launch("fill_int", {"y": y}, grid=1).faults == []
    assert y == 7


def test_function_as_template_argument_of_a_kernel(cxx):
    source = """
    #include <metal_stdlib>
    using namespace metal;
    typedef void (step_t)(device float*, threadgroup float*, uint);
    void turn(device float* y, threadgroup float* s, uint t) {
      s[t] = y[t]; threadgroup_barrier(mem_flags::mem_threadgroup); y[t] = s[3 - t];
    }
    template <step_t step> kernel void k(device float* y, uint t [[thread_position_in_grid]]) {
      threadgroup float s[4];
      step(y, s, t);
    }
    template [[host_name("turned")]] [[kernel]] decltype(k<turn>) k<turn>;"""
    y = np.arange(4, dtype=np.float32)
    lib = Library.from_source(source, check=2, cxx=cxx)
    assert lib.launch("turned", {"y": y}, grid=4, group=4).faults == []
    assert y.tolist() == [3, 2, 1, 0]


def test_defaulted_members_for_address_spaces(cxx):
    source = """
    template <typename T> struct pair {
      T a = 1;
    public:
      constexpr pair<T>() = default;
      constexpr pair<T>() threadgroup = default;
      pair(const thread pair&) = default;
      pair(const threadgroup pair&) = default;
    };
    struct other { float a = 2; other() thread = default; other() device = default; };
    kernel void k(device float* y) {
      threadgroup pair<float> shared;
      pair<float> own;
      other o;
      shared.a = 4;
      y[0] = shared.a + own.a + o.a;
    }"""
    y = np.zeros(1, np.float32)
    assert Library.from_source(source, cxx=cxx).launch("k", {"y": y}, grid=1).faults == []
    assert y == 7


def test_pragmas_move_no_line(cxx):
    source = """#include <metal_stdlib>
    template <int N> [[kernel]] void k(device float* y, uint i [[thread_position_in_grid]]) {
      y[0] = 0; for (int j = 1; j < N; ++j) { y[j] = 0; }
      y[N] = 0;
    }
    template [[host_name("k_4")]] [[kernel]] decltype(k<4>) k<4>;"""
    source = source.replace("for", '_Pragma("clang loop unroll(full)") for')
    lib = Library.from_source(source, check=1, cxx=cxx)
    faults = lib.launch("k_4", {"y": np.zeros(2, np.float32)}, grid=1, group=1).faults
    assert sorted((f.line, f.count) for f in faults) == [(3, 2), (4, 1)]


@pytest.mark.parametrize(
    "change, error, message",
    [
        ({"z": 1}, ValueError, "no buffer 'z'; kernel 'copy' has x \\(0\\), y \\(1\\), n \\(2\\)"),
        ({"x": None}, ValueError, r"buffer 'x' \(0\) is not bound"),
        ({"x": np.zeros(64)}, TypeError, "'x' has dtype float64; the kernel takes float32"),
        ({"n": 1.5}, TypeError, "'n' is 1.5, and the parameter a uint32"),
        ({"x": "text"}, TypeError, "'x' is a str"),
        ({"x": Memory(4096, 8, offset=9)}, ValueError, "offset 9"),
        ({"y": np.zeros(64, np.float32)[::-1]}, None, ""),
    ],
)
def test_arguments_that_do_not_fit(small, change, error, message):
    args = copied() | change
    args = {name: value for name, value in args.items() if value is not None}
    if error is None:
        small.launch("copy", args, grid=64, group=64)
        np.testing.assert_array_equal(args["y"], args["x"])
        return
    with pytest.raises(error, match=message):
        small.launch("copy", args, grid=64, group=64)


def test_arguments_that_overlap(small):
    whole = np.zeros(64, np.float32)
    with pytest.raises(ValueError, match="'x' and 'y' overlap"):
        small.launch("copy", {"x": whole[:40], "y": whole[30:], "n": 0}, grid=1)


def test_read_only_output(small):
    args = copied()
    args["y"].flags.writeable = False
    with pytest.raises(ValueError, match="'y' is read-only"):
        small.launch("copy", args, grid=64, group=64)


@pytest.mark.parametrize(
    "sizes",
    [{}, {"grid": 1, "groups": 1}, {"grid": 0}, {"groups": (1, -1)}, {"grid": 1, "order": -1}],
)
def test_sizes_that_are_none(small, sizes):
    with pytest.raises(ValueError):
        small.launch("copy", copied(), **sizes)


def test_unknown_kernel(small):
    with pytest.raises(KeyError, match="no kernel 'cpoy'; there are: argument, constants, copy"):
        small.launch("cpoy", {}, grid=1)


def test_source_that_does_not_compile(cxx):
    source = "#include <metal_stdlib>\nkernel void k(device float* y) {\n  y[0] = nothing;\n}\n"
    lib = Library.from_source(source, name="norm", cxx=cxx)
    with pytest.raises(CompileError, match=r"norm:3:.*nothing"):
        lib.launch("k", {"y": np.zeros(1, np.float32)}, grid=1)
    with pytest.raises(CompileError, match="no_such_file"):
        Library.from_source('#include "no_such_file.h"', cxx=cxx)


@pytest.mark.parametrize(
    "source, message",
    [
        ("kernel void k(device float* y) {", "'{' is not closed"),
        ("kernel void k(float y) {}", "'float y' of kernel 'k'"),
        ("kernel void k(device int* y [[buffer(31)]]) {}", "'y' of kernel 'k': buffer\\(31\\)"),
        ("kernel void k(device int* y) { threadgroup int x(y); }", "source:1: the declaration"),
        ("kernel void k(device int* y) { threadgroup int x{y[0]}; }", "source:1: the declaration"),
        ("kernel void k(device int* y) { threadgroup int x = 1; }", "source:1: .* initialized"),
        ("kernel void k(device int* y) { threadgroup int x[2] = {0, 2}; }", "be initialized"),
        ('template [[host_name("h")]] [[kernel]] decltype(f<1>) f<1>;', "'f', which is no kernel"),
    ],
)
def test_source_that_is_not_understood(cxx, source, message):
    with pytest.raises(SourceError, match=message):
        Library.from_source(source, cxx=cxx)


def test_compiler_that_is_missing():
    with pytest.raises(CompileError, match="no-such-compiler"):
        Library.from_source("", cxx="no-such-compiler")


def test_launches_from_several_threads(small):
    failed = []

    def run(seed):
        x = np.random.default_rng(seed).normal(size=256).astype(np.float32)
        for _ in range(20):
            y = np.zeros_like(x)
            result = small.launch("copy", {"x": x, "y": y, "n": 256}, grid=256, group=64)
            if result.faults or not np.array_equal(x, y):
                failed.append(seed)

    threads = [threading.Thread(target=run, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failed


def test_cold_cache_is_shared_by_processes(tmp_path):
    program = (
        "import numpy as np; from metalsim import Library;"
        "y = np.zeros(1, np.float32);"
        "s = 'kernel void k(device float* y) { y[0] = 5; }';"
        "Library.from_source(s, check=1).launch('k', {'y': y}, grid=1);"
        "print(y[0])"
    )
    environment = {"METALSIM_CACHE": str(tmp_path), "PATH": os.environ["PATH"]}
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", program],
            cwd=Path(__file__).parents[1],
            env=environment,
            stdout=subprocess.PIPE,
            text=True,
        )
        for _ in range(2)
    ]
    assert [p.communicate()[0].strip() for p in processes] == ["5.0", "5.0"]
    assert len(list(tmp_path.glob("library-*.so"))) == 1
    assert not list(tmp_path.glob("*.partial"))
