"""What MSL lacks: one planted violation for each rule, and MSL that comes close to one."""

import pytest

from metalsim import rules
from planted.cases import FILES

IN_FUNCTION = {
    "lambda": ["auto f = [](float v) { return v; };", "x[0] = [&] { return 1.0f; }();"],
    "function pointer": ["float (*f)(float) = helper;", "float (*f[2])(float);"],
    "long long": ["long long l = 0;", "x[0] = (unsigned long long)n;"],
    "keyword": [
        "int half = n / 2;",
        "uint n2 = n, half = 2;",
        "device float* vertex = x;",
        "float ray_data[2] = {1, 2};",
        "for (int kernel = 0;;) {}",
    ],
}

AT_TOP = {
    "recursion": [
        "int f(int n) { return n ? f(n - 1) : 0; }",
        "template <class T>\nT f(T n) { return f(n); }",
        "struct S { int f(int n) { return this->f(n); } };",
        "int g(int n);\nint f(int n) { return g(n); }\nint g(int n) { return f(n); }",
    ],
    "function pointer": ["void run(float (*f)(float)) {}"],
    "keyword": ["float half(float x) { return x / 2; }", "struct vertex { float x; };"],
}

# After `using namespace metal`.
CLASHES = [
    "inline float level(thread const uint* words, int at) { return words[at]; }",
    "float bias(int n);",
    "constant int access = 3;",
    "constant bool filter [[function_constant(0)]];",
    "static constant constexpr float coord[2] = {1, 2};",
    "struct sampler { float x; };",
    "enum component { first, second };",
    "enum Kind { other, min_lod_clamp };",
    "typedef float2 extents;",
    "using tensor = float4;",
    "using other::ray;",
    "template <typename T> struct mesh { T x; };",
    "template <int N> kernel void atomic(device float* x [[buffer(0)]]) {}",
    'extern "C" { int patch_control_point; }',
    "constant bool saturate = true;",  # a function of Metal's, but no function here
    "enum Way { step, stride };",
    "inline float exp(float v) { return v; }",
    "inline float2 fma(float2 a, const float2 b, float2) { return a; }",
    "inline uint rotate(uint v, uint by) { return v << by; }",
    "inline float simd_shuffle_xor(float v, ushort lane) { return v; }",
]

CLEAN = r"""
// Copyright © who wrote it; a lambda []{} in a comment.
#include <metal_stdlib>
#include <simd/simd.h>
#include "other.h"
using namespace metal;

constant float table[2] = {1.0f, 2};
constant bool doubled [[function_constant(0)]];
static constexpr constant int sizes[3] = {1, 2, 3};

struct Params {
  int n;
  Params() = default;
  Params(const thread Params&) = delete;
  static int twice(int k) { return 2 * k; }
  float operator()(float v) const { return v; }
  float operator[](int i) const { return i; }
};

// Overloads, Metal's own names and templates that end are no recursion.
inline float exp(Params v) { return exp(float(v.n)); }
template <int N>
inline void normalize(thread float* v) { v[0] = N; }
inline ulong simd_shuffle_xor(ulong v, ushort lane) { return v; }
inline float rotate(float v, float by) { return v * by; }

// Names of Metal's, in a namespace, of members and of locals, which hide them.
namespace ours {
inline float level(float bias) { return bias; }
}
struct Texture { float access, filter; float level() const thread { return access; } };
inline float sampled(float level, int sampler) {
  float bias = level;
  return ours::level(bias) + sampler;
}
inline half halved(half x, device half* out) { return half(2) * half(x) + sizeof(half); }
inline float f(float a) { return a; }
inline float f(int a) { return f(float(a)); }
inline float f(float a, float b) { return f(a) + b; }
template <int N>
inline int halvings() {
  if constexpr (N > 1) {
    return 1 + halvings<N / 2>();
  }
  return 0;
}
template <typename T, typename... Rest>
T total(T first, Rest... rest) { return first + total(rest...); }

template <typename T>
using Radix = void (*)(thread T*, thread T*);
template <typename T, void (*step)(thread T&, int)>
void twice(thread T& v) { step(v, 1); step(v, 2); }

template <typename T, int N>
kernel void k(
    device const T* x [[buffer(0)]],
    device T* y [[buffer(1)]],
    constant Params& p [[buffer(2)]],
    threadgroup T* scratch [[threadgroup(0)]],
    uint t [[thread_position_in_threadgroup]],
    uint n [[threads_per_grid]]) {
  constexpr int M = 2 * N;
  const int count = 4;
  threadgroup T shared[M] = {0};
  threadgroup float single;
  threadgroup T* at = shared;
  T v[N], w[M + sizeof(T)];
  T fixed[count] = {T(1), T(2)};
  thread T* own = (thread T*)v;
  device const float4* wide = (device const float4*)(x + 4 * n);
  auto bytes = reinterpret_cast<threadgroup uint*>(&shared[1]);
  y[table[sizes[0]] > n ? 1 : n] = x[n] * w[n];
  static constexpr constant int fours[1] = {4};
  uint bits = 0x1L;
  long wide_int = 10L;
  float d = (float)n + fixed[0] + p[1] + 1e-5f;
  if (n > sizes[1] && x[n] < y[n]) { y[n] = p(d) + Params::twice(n); }
}
template [[host_name("k_float_4")]] [[kernel]] decltype(k<float, 4>) k<float, 4>;
"""


def planted(samples):
    return [(rule, text) for rule, texts in samples.items() for text in texts]


@pytest.mark.parametrize("rule, text", planted(IN_FUNCTION))
def test_found_in_function(rule, text):
    before = (
        "kernel void k(device float* x [[buffer(0)]], uint n [[thread_position_in_grid]]) {\n"
        "  threadgroup float shared[4];\n"
    )
    found = rules.check(before + text + "\n}\n")
    assert {v.rule for v in found} == {rule}
    assert all(v.line == 3 + text.count("\n") for v in found)


@pytest.mark.parametrize("rule, text", planted(AT_TOP))
def test_found_at_top(rule, text):
    found = rules.check("\n" + text + "\n")
    assert {v.rule for v in found} == {rule}
    assert {v.line for v in found} <= {2, 3, 4}


def test_mutual_recursion_names_the_way():
    found = rules.check(
        "int g(int n);\nint f(int n) { return g(n); }\nint g(int n) { return f(n); }"
    )
    assert [v.message for v in found] == ["f calls itself through g", "g calls itself through f"]


@pytest.mark.parametrize("text", CLASHES)
def test_name_of_metal(text):
    using = "#include <metal_stdlib>\nusing namespace metal;\n"
    (found,) = rules.check(using + text)
    assert (found.rule, found.line) == ("name of Metal's", 3)
    assert rules.check(text) == []


def test_clean():
    assert rules.check(CLEAN) == []
    for path in FILES:
        assert rules.check(path.read_text()) == []


def test_command(tmp_path, capsys):
    (tmp_path / "good.metal").write_text("constant int n = 1;\n")
    (tmp_path / "bad.metal").write_text("constant int n = 1;\nconstant long long l = 1;\n")
    assert rules.main([str(tmp_path / "good.metal")]) == 0
    assert rules.main([str(tmp_path / "bad.metal")]) == 1
    assert capsys.readouterr().out == f"{tmp_path}/bad.metal:2: long long: MSL has no long long\n"
