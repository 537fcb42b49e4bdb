"""The address-space check: each kind of fault planted in one kernel that is clean without it."""

import subprocess
import sys
from pathlib import Path

import pytest

from metalsim import CompileError, address_spaces
from planted.cases import FILES

pytestmark = pytest.mark.instrument


@pytest.fixture(autouse=True)
def clang():
    if address_spaces.compiler() is None:
        pytest.skip("instrument missing: clang++, for the address spaces of MSL")


CLEAN = """#include <metal_stdlib>
using namespace metal;

struct Params {
  int n;
  float eps;
};
struct Pair {
  float a;
  uint b;
  float sum() const {
    return a + b;
  }
  float first() const device {
    return a;
  }
};
template <typename T>
struct Mean {
  T total = 0;
  uint count = 0;
  void add(thread const T& v) thread {
    total += v;
    count++;
  }
};

constant bool flag [[function_constant(0)]];
constant float table[2] = {1, 2};

inline float near(threadgroup const float* p) {
  return p[0];
}
template <typename T>
inline T near_t(threadgroup const T* p) {
  return p[0];
}
inline void bump(thread float& v) {
  v += 1;
}
inline float own_sum(const float* p) {
  return p[0] + p[1];
}

template <typename T, int N>
kernel void k(
    device const T* x [[buffer(0)]],
    device T* y [[buffer(1), function_constant(flag)]],
    constant float& eps [[buffer(2)]],
    constant Params* p [[buffer(3)]],
    device Pair* pairs [[buffer(4)]],
    threadgroup T* given [[threadgroup(0)]],
    uint t [[thread_position_in_threadgroup]]) {
  threadgroup T shared[N], more[2][N];
  threadgroup atomic_uint counter;
  threadgroup Pair one;
  T own[4] = {x[0], x[1], x[2], x[3]};
  Params params = *p;
  one = pairs[t];
  pairs[t + 1] = one;
  Pair copy = one;
  Mean<T> mean;
  mean.add(own[0]);
  mean.add(x[0] * eps);
  bump(own[1]);
  device const float4* wide = (device const float4*)(x + 4);
  float4 v = float4(wide[t].xy, table[0], params.eps);
  v.zw = float2(own[2]);
  shared[t] = v.x + own_sum(own) + copy.sum() + pairs[0].first();
  atomic_fetch_add_explicit(&counter, 1u, memory_order_relaxed);
  threadgroup_barrier(mem_flags::mem_threadgroup);
  threadgroup T* from = shared + 1;
  more[0][t] = near(from) + near_t(given) + simd_sum(mean.total);
  simdgroup_float8x8 m;
  simdgroup_load(m, x, 8);
  // HERE
  y[t] = more[0][t];
}
template [[host_name("k_float")]] [[kernel]] decltype(k<float, 32>) k<float, 32>;
"""
HERE = CLEAN[: CLEAN.index("// HERE")].count("\n") + 1

FAULTS = [
    "device T* q = shared;",
    "float* q = y;",
    "thread T* q = given;",
    "device T* q = own;",
    "device const T* q; q = own;",
    "constant T* q = x;",
    "y[0] = near(x);",
    "y[0] = near_t(x);",
    "y[0] = near(own);",
    "y[0] = own_sum(shared);",
    "y[0] = own_sum(x);",
    "bump(shared[t]);",
    "bump(y[t]);",
    "mean.add(shared[t]);",
    "eps = 2;",
    "p->n = 3;",
    "*p = params;",
    "table[1] = 3;",
    "auto q = (device float4*)shared;",
    "auto q = (device const float*)p;",
    "auto q = (threadgroup atomic_uint*)y;",
    "auto q = reinterpret_cast<threadgroup uint*>(y);",
    "auto q = static_cast<device T*>(shared);",
    "threadgroup T& q = y[0];",
    "thread const T& q = x[0];",
    "device const T& q = own[0] * 2;",
    "bool q = given == y;",
    "auto q = t ? given : y;",
    "simdgroup_load(m, &eps, 8);",
    "simdgroup_store(m, own, 8);",
    "atomic_fetch_add_explicit((thread atomic_uint*)own, 1u, memory_order_relaxed);",
    "y[0] = pairs[0].sum();",
    "y[0] = copy.first();",
    "static float last;",
    "if (t) { static int calls = 0; }",
    "float v[t];",
    "const uint twice = 2 * t; float v[twice];",
    "for (uint n = 1;;) { half v[2 * n]; }",
]


def spaces(text, **options):
    return [(d.line, d.message) for d in address_spaces.check(text, **options) if d.space]


def test_clean():
    """Silent, but for two places that it says it cannot check."""
    found = address_spaces.check(CLEAN)
    assert not any(d.space for d in found)
    lines = CLEAN.splitlines()
    unread = {lines[d.line - 1].strip() for d in found}
    assert unread == {"Params params = *p;", "mean.add(x[0] * eps);"}


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_planted_files_are_clean(path):
    assert address_spaces.check(path) == []


@pytest.mark.parametrize("fault", FAULTS)
def test_found(fault):
    found = spaces(CLEAN.replace("// HERE", fault))
    assert [line for line, _ in found] == [HERE], found


# Clean before MSL 4.1, in which the marked lines are not.
UNQUALIFIED = """
inline void bump(thread float& v) {
  v += 1;
}
inline void bump_any(float& v) {
  bump(v); // 4.1
}
inline float first(thread const float* v) {
  return v[0];
}
inline float first_of_any(const float* v) {
  return first(v); // 4.1
}
template <int N>
struct Own {
  float v[N];
  float kept() const {
    return v[0];
  }
  float sum() thread {
    bump(v[0]);
    bump_any(v[0]);
    return first(v) + first_of_any(v) + kept();
  }
};
template <>
struct Own<8> {
  float v[8];
  float sum() {
    return first(v); // 4.1
  }
};
template <>
struct Own<16> {
  float v;
  template <typename T>
  float plus(T more) {
    bump(v); // 4.1
    return more;
  }
  float sum() thread {
    return plus(1);
  }
};
template <int N>
kernel void k(device float* y) {
  Own<N> own;
  y[N] = own.sum();
}
template [[host_name("k_4")]] [[kernel]] decltype(k<4>) k<4>;
template [[host_name("k_8")]] [[kernel]] decltype(k<8>) k<8>;
template [[host_name("k_16")]] [[kernel]] decltype(k<16>) k<16>;
"""


def test_what_names_no_space_is_generic_as_of_4_1():
    """In all instances of a kernel."""
    assert address_spaces.check(UNQUALIFIED) == []
    marked = [n for n, line in enumerate(UNQUALIFIED.splitlines(), 1) if "// 4.1" in line]
    assert len(marked) == 4
    assert sorted(line for line, _ in spaces(UNQUALIFIED, generic=True)) == marked


def test_faults_as_of_4_1():
    """All of the above, but for pointers that may point anywhere, and then do."""
    anywhere = ["float* q = y;", "y[0] = own_sum(shared);", "y[0] = own_sum(x);"]
    anywhere.append("y[0] = pairs[0].sum();")
    for fault in FAULTS:
        lines = [line for line, _ in spaces(CLEAN.replace("// HERE", fault), generic=True)]
        assert lines == ([] if fault in anywhere else [HERE]), fault


def test_macros_are_defined():
    text = CLEAN.replace("// HERE", "device T* q = FROM;")
    assert spaces(text, defines=["FROM=y"]) == []
    assert [line for line, _ in spaces(text, defines=["FROM=shared"])] == [HERE]


def test_kernel_parameter_without_space():
    text = (
        "[[kernel]] void k(\n    constant int& n [[buffer(0)]],\n    float* x [[buffer(1)]]) {}\n"
    )
    assert spaces(text) == [(3, "kernel parameter x has no address space")]


def test_header(tmp_path):
    """A fault in a header is reported there, and the folders of headers are looked through."""
    (tmp_path / "help").mkdir()
    header = "\ninline device float* f(threadgroup float* p) { return p; }\n"
    (tmp_path / "help" / "part.h").write_text(header)
    (tmp_path / "k.metal").write_text('#include "part.h"\nconstant int n = 1;\n')
    with pytest.raises(CompileError, match="part.h"):
        address_spaces.check(tmp_path / "k.metal")
    (found,) = address_spaces.check(tmp_path / "k.metal", [tmp_path / "help"])
    assert (Path(found.file).name, found.line, found.space) == ("part.h", 2, True)


def test_command(tmp_path):
    (tmp_path / "k.metal").write_text(CLEAN.replace("// HERE", FAULTS[0]))
    command = [sys.executable, "-m", "metalsim.address_spaces", str(tmp_path / "k.metal")]
    run = subprocess.run(command, cwd=Path(__file__).parents[1], capture_output=True, text=True)
    assert run.returncode == 1
    assert f"k.metal:{HERE}: cannot initialize a variable" in run.stdout
    (tmp_path / "k.metal").write_text(UNQUALIFIED)
    run = subprocess.run(command, cwd=Path(__file__).parents[1], capture_output=True, text=True)
    assert (run.returncode, run.stdout) == (0, "")
    command.append("--generic")
    run = subprocess.run(command, cwd=Path(__file__).parents[1], capture_output=True, text=True)
    assert run.returncode == 1
    assert "k.metal:6: no matching function for call to 'bump'" in run.stdout
