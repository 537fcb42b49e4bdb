"""The Metal text has nothing that MLX's kernels, which Macs compile, do without."""

import pytest

import metal_dialect
from metal_dialect import SAFE
from metal_features import Source, directives


@pytest.fixture(scope="module")
def used():
    return metal_dialect.features(metal_dialect.ours())


@pytest.fixture(scope="module")
def mlx_s():
    return metal_dialect.features_of_mlx()


def features(text):
    return Source(text, "planted").features() | directives(text)


def test_what_mlx_does_without_is_listed_with_a_reason(used, mlx_s):
    """And the list has nothing else."""
    assert len(used & mlx_s) > 100
    assert used - mlx_s == SAFE.keys()
    assert all(SAFE.values())


# In a function of two floats, a and b.
IN_FUNCTION = {
    "call simd_shuffle_rotate_down of 2": "a = simd_shuffle_rotate_down(a, 1);",
    "call simd_ballot of 1": "auto v = metal::simd_ballot(a > b);",
    "call fma of 2": "a = fma(a, b);",
    "call step of 2": "float step = 1; a = step(step, b);",
    "call atomic_fetch_sub_explicit of 3": "atomic_fetch_sub_explicit(q, 1, memory_order_relaxed);",
    "name mem_flags::mem_texture": "threadgroup_barrier(mem_flags::mem_texture);",
    "name bfloat4": "bfloat4 v;",
    "name tensor": "tensor<device float, extents<int, 4>> t;",
    "swizzle wx": "float4 v; v.wx = v.xy;",
    "number 0.0bf": "a = 1.5bf;",
    "keyword goto": "goto end; end:;",
    "keywords const static": "int const static n = 2;",
    "attribute unroll": "[[unroll]] for (;;) {}",
    "construct designated initializer": "Pair q = {.first = a};",
    "construct lambda": "auto f = [&](float v) { return v; };",
    "construct loop over a range": "for (float v : values) { a += v; }",
    "construct pointer to a function": "void (*f)(float);",
    "construct structured binding": "auto [x, y] = both(p);",
    "name os_log_default": 'os_log_default.log("%f", a);',
    "pragma clang loop vectorize(enable)": '_Pragma("clang loop vectorize(enable)") for (;;) {}',
    "directive warning": "\n#warning no\n",
    "macro __METAL_DYNAMIC__": "\n#ifdef __METAL_DYNAMIC__\n#endif\n",
    "include <metal_texture>": "\n#include <metal_texture>\n",
}
AT_TOP = {
    "attribute coherent": "kernel void k(device float* p [[buffer(0), coherent(device)]]) {}",
    "attribute user_annotation": '[[user_annotation("x")]] kernel void k() {}',
    "attribute nodiscard": "#define INSTANTIATE(N) template [[nodiscard]] void f<N>();\n",
    "construct bit-field": "struct S { uint low : 4; };",
    "construct fold": "template <typename... T> int f(T... t) { return (t + ...); }",
    "keyword virtual": "struct S { virtual void f(); };",
    "directive __VA_OPT__": "#define CALL(f, ...) f(1 __VA_OPT__(, ) __VA_ARGS__)\n",
}
PLANTED = [(feature, f"void f(float a, float b) {{ {t} }}") for feature, t in IN_FUNCTION.items()]


@pytest.mark.parametrize("feature, text", [*PLANTED, *AT_TOP.items()])
def test_what_is_foreign_is_found(used, mlx_s, feature, text):
    assert feature not in used | mlx_s | SAFE.keys()
    assert feature in features(text)


OWN = """
enum Kind { kOne, kTwo = 2 };
struct Both { float first, second; float sum() const { return first + second; } };
template <typename T, int N> inline T twice(thread const T& v, int n = N) { return v + v; }
#define CALL(f, v) f(v)
kernel void own(device float* p, constant const int& size [[buffer(1)]]) {
  float a = p[0], b = twice<float, 2>(a), c[2] = {a, b};
  Both both{a, b};
  p[size] = CALL(twice, both.sum()) + c[kTwo - 1] + float(a < b && b > c[0]);
}
"""


def test_what_mlx_declares_is_not_metal_s(mlx_s):
    assert not {f for f in mlx_s if f.startswith("call load_safe")}
    assert {"call simd_sum of 1", "call precise::exp of 1"} <= mlx_s


def test_what_the_text_declares_is_no_feature():
    assert {f for f in features(OWN) if f.startswith(("call", "name"))} == set()


CONSTRUCTS = {
    "instantiation": 'template [[host_name("k_1")]] [[kernel]] decltype(k<1>) k<1>;',
    "method of an address space": "struct S { int f() const thread { return 1; } };",
    "reference to an array": "void f(thread float (&v)[4]) {}",
    "specialization": "template <> struct S<int> {};",
    "threadgroup variable": "void f() { ; threadgroup float v[4], w; }",
    "variadic template": "template <typename... T> void f();",
}


@pytest.mark.parametrize("name, text", CONSTRUCTS.items())
def test_constructs_are_told_from_the_text(name, text):
    found = {f for f in features(text) if f.startswith("construct")}
    assert found == {f"construct {name}"}


@pytest.mark.slow
def test_the_command_names_what_is_foreign_and_what_is_needless(monkeypatch, capsys):
    monkeypatch.setattr(metal_dialect, "SAFE", SAFE | {"keyword if": "needless"})
    texts = metal_dialect.ours() | {"planted": PLANTED[0][1]}
    monkeypatch.setattr(metal_dialect, "ours", lambda: texts)
    assert metal_dialect.main() == 1
    foreign, needless = capsys.readouterr().out.splitlines()
    assert foreign == f"{PLANTED[0][0]}: MLX's kernels do without"
    assert needless == "keyword if: stands in SAFE, where it is not needed"
    monkeypatch.undo()
    assert metal_dialect.main() == 0
