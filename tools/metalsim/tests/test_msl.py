"""The Metal simulator: the language and its standard library, against NumPy."""

import functools
import shutil

import numpy as np
import pytest

from metalsim import CompileError, Library, bfloat16

pytestmark = pytest.mark.instrument

RNG = np.random.default_rng(11)
HEAD = "#include <metal_stdlib>\n#include <metal_simdgroup_matrix>\nusing namespace metal;\n"
LANE = "uint i [[thread_index_in_simdgroup]]"


@pytest.fixture(scope="module", params=["clang++-16", "g++"])
def cxx(request):
    if not shutil.which(request.param):
        pytest.skip(f"instrument missing: {request.param}")
    return request.param


@functools.cache
def library(source, cxx):
    return Library.from_source(HEAD + source, check=1, cxx=cxx)


def run(cxx, source, args, threads=32, kernel="k"):
    result = library(source, cxx).launch(kernel, args, grid=threads, group=threads)
    assert result.faults == []
    return result


def per_lane(cxx, statement, x, out_type, dtype):
    """y[i] for each of the 32 lanes, of a statement that sets y from x = x[i] and lane i."""
    kinds = {"float32": "float", "float16": "half", "int32": "int", "uint32": "uint"}
    in_type = kinds[x.dtype.name]
    y = np.zeros(32, dtype)
    run(
        cxx,
        f"kernel void k(device const {in_type}* in, device {out_type}* out, {LANE}) {{"
        f" {in_type} x = in[i]; {out_type} y; {statement} out[i] = y; }}",
        {"in": x, "out": y},
    )
    return y


def of_each(cxx, expressions, x, kind):
    """A row of values, one a lane, for each expression of x = x[i] and lane i, by one kernel."""
    y = np.zeros((len(expressions), 32), x.dtype)
    body = "\n".join(
        f"{{ {kind} y = {e}; out[{32 * k} + i] = y; }}" for k, (e, _) in enumerate(expressions)
    )
    head = f"kernel void k(device const {kind}* in, device {kind}* out, {LANE})"
    run(cxx, f"{head} {{ {kind} x = in[i]; {body} }}", {"in": x, "out": y})
    return y


POSITIVE = RNG.uniform(0.1, 3, 32)
UNIT = RNG.uniform(-0.9, 0.9, 32)
ANY = RNG.normal(size=32) * 2
FUNCTIONS = {
    "exp": (np.exp, ANY),
    "exp2": (np.exp2, ANY),
    "exp10": (lambda x: 10**x, ANY),
    "log": (np.log, POSITIVE),
    "log2": (np.log2, POSITIVE),
    "log10": (np.log10, POSITIVE),
    "sqrt": (np.sqrt, POSITIVE),
    "rsqrt": (lambda x: 1 / np.sqrt(x), POSITIVE),
    "sin": (np.sin, ANY),
    "cos": (np.cos, ANY),
    "tan": (np.tan, UNIT),
    "sinpi": (lambda x: np.sin(np.pi * x), UNIT),
    "cospi": (lambda x: np.cos(np.pi * x), UNIT),
    "asin": (np.arcsin, UNIT),
    "acos": (np.arccos, UNIT),
    "atan": (np.arctan, ANY),
    "sinh": (np.sinh, ANY),
    "cosh": (np.cosh, ANY),
    "tanh": (np.tanh, ANY),
    "asinh": (np.arcsinh, ANY),
    "acosh": (np.arccosh, POSITIVE + 1),
    "atanh": (np.arctanh, UNIT),
    "floor": (np.floor, ANY),
    "ceil": (np.ceil, ANY),
    "trunc": (np.trunc, ANY),
    "rint": (np.rint, ANY),
    "round": (lambda x: np.trunc(x + np.copysign(0.5, x)), ANY),
    "fabs": (np.abs, ANY),
    "abs": (np.abs, ANY),
    "fract": (lambda x: x - np.floor(x), ANY),
    "sign": (np.sign, ANY),
    "saturate": (lambda x: np.clip(x, 0, 1), ANY),
}


@pytest.mark.parametrize("space", ["metal", "metal::fast", "metal::precise"])
def test_functions_of_one_float(cxx, space):
    names = [n for n in FUNCTIONS if space == "metal" or n != "abs"]
    body = "\n".join(
        f"y[{k} * 32 + i] = {space}::{n}(x[{k} * 32 + i]);" for k, n in enumerate(names)
    )
    x = np.stack([FUNCTIONS[n][1] for n in names]).astype(np.float32)
    y = np.zeros_like(x)
    run(cxx, f"kernel void k(device const float* x, device float* y, {LANE}) {{{body}}}",
        {"x": x, "y": y})  # fmt: skip
    for name, got, at in zip(names, y, x.astype(np.float64)):
        np.testing.assert_allclose(got, FUNCTIONS[name][0](at), rtol=3e-6, atol=1e-6, err_msg=name)


def test_functions_of_half_round_once(cxx):
    x = POSITIVE.astype(np.float16)
    y = per_lane(cxx, "y = exp(x);", x, "half", np.float16)
    np.testing.assert_array_equal(y, np.exp(x.astype(np.float32)).astype(np.float16))
    z = per_lane(cxx, "half2 v = sqrt(half2(x, 4.0h)); y = v.x * v.y;", x, "half", np.float16)
    np.testing.assert_array_equal(z, np.sqrt(x.astype(np.float32)).astype(np.float16) * 2)


EXPRESSIONS = [
    ("fmin(x, 0.5)", lambda x: np.minimum(x, 0.5)),
    ("max(x, 0.0f)", lambda x: np.maximum(x, 0)),
    ("min3(x, 1.0f, -1.0f)", lambda x: np.minimum(x, -1)),
    ("median3(x, 1.0f, -1.0f)", lambda x: np.clip(x, -1, 1)),
    ("clamp(x, -1.0f, 1.0f)", lambda x: np.clip(x, -1, 1)),
    ("pow(abs(x), 3.0f)", lambda x: np.abs(x) ** 3),
    ("atan2(x, 2.0f)", lambda x: np.arctan2(x, 2)),
    ("fmod(x, 0.75f)", lambda x: np.fmod(x, 0.75)),
    ("copysign(3.0f, x)", lambda x: np.copysign(3, x)),
    ("mix(x, 2.0f, 0.25f)", lambda x: x + (2 - x) * 0.25),
    ("step(0.5f, x)", lambda x: (x >= 0.5).astype(float)),
    ("select(x, 9.0f, x < 0)", lambda x: np.where(x < 0, 9, x)),
    ("ldexp(x, 3)", lambda x: x * 8),
    ("isnan(x) || isinf(1 / (x - x)) ? 1 : 0", lambda x: np.ones(32)),
    ("x * 0.1", lambda x: x.astype(np.float32) * np.float32(0.1)),
    ("1 / 3 + x", lambda x: x),
    ("as_type<float>(as_type<uint>(x) & 0x7fffffffu)", np.abs),
    ("length(float3(x, 2, 2))", lambda x: np.sqrt(x * x + 8)),
    ("dot(float4(x), float4(1, 2, 3, 4))", lambda x: 10 * x),
    ("cross(float3(1, x, 0), float3(0, 1, 0)).z", lambda x: np.ones(32)),
    ("normalize(float2(x, 0)).x", np.sign),
    ("(float2x2(float2(1, 2), float2(3, 4)) * float2(x, 1)).y", lambda x: 2 * x + 4),
    ("transpose(float2x2(float2(1, 2), float2(3, x)))[1][0]", lambda x: np.full(32, 2.0)),
]


def test_expressions(cxx):
    x = ANY.astype(np.float32)
    for (expression, want), y in zip(
        EXPRESSIONS, of_each(cxx, EXPRESSIONS, x, "float"), strict=True
    ):
        np.testing.assert_allclose(
            y, want(x.astype(np.float64)), rtol=2e-6, atol=1e-6, err_msg=expression
        )


INTEGERS = [
    ("popcount(x)", lambda x: np.array([v.bit_count() for v in x.tolist()])),
    ("clz(x)", lambda x: np.array([32 - v.bit_length() for v in x.tolist()])),
    ("ctz(x)", lambda x: np.array([(v & -v).bit_length() - 1 for v in x.tolist()])),
    ("reverse_bits(reverse_bits(x) + 0u)", lambda x: x),
    ("mulhi(x, 0x80000000u)", lambda x: x // 2),
    ("rotate(x, 8u)", lambda x: x << 8 | x >> 24),
    ("extract_bits(x, 4, 8)", lambda x: x >> 4 & 255),
    ("insert_bits(x, 5u, 8, 4)", lambda x: x & ~np.uint32(0xF00) | np.uint32(0x500)),
    (
        "addsat(x, 0xfffffff0u)",
        lambda x: np.minimum(x.astype(np.uint64) + 0xFFFFFFF0, 2**32 - 1),
    ),
    ("absdiff(x, 7u)", lambda x: np.abs(x.astype(np.int64) - 7)),
]


def test_integers(cxx):
    x = RNG.integers(1, 2**32, size=32).astype(np.uint32)
    for (expression, want), y in zip(INTEGERS, of_each(cxx, INTEGERS, x, "uint"), strict=True):
        np.testing.assert_array_equal(y, want(x), err_msg=expression)


def test_half_rounds_each_operation(cxx):
    x = RNG.normal(size=32).astype(np.float16)
    y = per_lane(cxx, "y = x * x + x; y = y * 3.0h - x;", x, "half", np.float16)
    want = x * x + x
    np.testing.assert_array_equal(y, want * np.float16(3) - x)


def test_no_contraction(cxx):
    x = RNG.normal(size=32).astype(np.float32)
    y = per_lane(cxx, "y = x * x - x;", x, "float", np.float32)
    np.testing.assert_array_equal(y, x * x - x)
    z = per_lane(cxx, "y = metal::fma(x, x, -x);", x, "float", np.float32)
    wide = x.astype(np.float64)
    np.testing.assert_array_equal(z, (wide * wide - wide).astype(np.float32))


def test_bfloat(cxx):
    specials = [np.inf, -np.inf, np.nan, 0.0, -0.0, 1 + 2**-8, 1 + 3 * 2**-8, 3.4e38, 1e-40]
    x = np.append(np.array(specials), RNG.normal(size=23)).astype(np.float32)
    rounded, sums, literal = (np.zeros(32, np.uint16) for _ in range(3))
    source = f"""
    kernel void k(device const float* x, device bfloat* y, device bfloat* z,
                  device bfloat* c, {LANE}) {{
      bfloat b = bfloat(x[i]);
      y[i] = b;
      z[i] = b * b + b;
      c[i] = i < 16 ? 1.5bf : -b * 2;
    }}"""
    run(cxx, source, {"x": x, "y": rounded, "z": sums, "c": literal})
    np.testing.assert_array_equal(rounded, bfloat16(x))
    wide = (rounded.astype(np.uint32) << 16).view(np.float32)
    with np.errstate(all="ignore"):
        square = (bfloat16(wide * wide).astype(np.uint32) << 16).view(np.float32)
        np.testing.assert_array_equal(sums[3:], bfloat16(square + wide)[3:])
    np.testing.assert_array_equal(literal[16:], bfloat16(-2 * wide)[16:])
    assert (literal[:16] == 0x3FC0).all()


def test_vectors_and_swizzles(cxx):
    source = f"""
    struct Point {{ float2 xy; float z; float3 all() const {{ return float3(xy, z); }} }};
    union Bits {{ uint2 u; half4 h; }};
    template <typename V> V twice(V v) {{ return v + v; }}
    kernel void k(device float4* y, device packed_float3* p, device const float4* x, {LANE}) {{
      float4 v = x[i];
      float2 xy = v.zw;
      v.xy = xy.yx;
      v.zw *= 2;
      v.rg += float2(1, 2);
      float3 t = twice(v.xyz);
      float3 const w = {{t.z, t.y}};
      Point a = {{v.wz, 5}};
      Bits bits;
      bits.u = uint2(0x3c003c00u, 0x40004000u);
      Bits same = bits;
      y[i] = float4(w.x, w.z, a.all().x, float(same.h.w)) + (v.xxxx == v ? float4(0) : v).x;
      p[i] = packed_float3(t);
      p[i].y = p[i].zyx.x;
    }}"""
    source = source.replace("(v.xxxx == v ? float4(0) : v).x", "(all(v.xxxx == v) ? 1.0 : 0.0)")
    x = RNG.normal(size=(32, 4)).astype(np.float32)
    y, p = np.zeros_like(x), np.zeros((32, 3), np.float32)
    result = run(cxx, source, {"x": x, "y": y, "p": p})
    v = np.stack([x[:, 3] + 1, x[:, 2] + 2, x[:, 2] * 2, x[:, 3] * 2], 1)
    t = 2 * v[:, :3]
    np.testing.assert_array_equal(y, np.stack([t[:, 2], 0 * t[:, 0], v[:, 3], 2 + 0 * t[:, 0]], 1))
    np.testing.assert_array_equal(p, np.stack([t[:, 0], t[:, 2], t[:, 2]], 1))
    assert result.bytes["x"] == (32 * 16, 0)
    assert result.bytes["y"] == (0, 32 * 16)


def test_a_vector_of_three_takes_twelve_bytes(cxx):
    source = f"kernel void k(device const float3* x, device float3* y, {LANE}) {{ y[i] = x[i]; }}"
    x, y = RNG.normal(size=(32, 4)).astype(np.float32), np.zeros((32, 4), np.float32)
    result = run(cxx, source, {"x": x, "y": y})
    assert result.bytes == {"x": (32 * 12, 0), "y": (0, 32 * 12)}
    np.testing.assert_array_equal(y[:, :3], x[:, :3])
    assert not y[:, 3].any()


NAMED = "inline float {0}(float x) {{ return x; }} inline float g(float x) {{ return {0}(x); }}"
# Refused, as by Metal's compiler, which has an overload of min for each type of scalars.
REFUSED = [
    (NAMED.format("level"), "y = g(x);", "ambiguous"),
    ("struct sampler { float x; };", "sampler s{x}; y = s.x;", "ambiguous"),
    ("enum Kind { mesh };", "y = x + mesh;", "ambiguous"),
    ("", "y = max(x, 0);", "ambiguous"),
    ("", "y = min(i, 3);", "ambiguous"),
    ("", "y = clamp(x, 0, 1);", "ambiguous"),
    ("", "y = fma(half(x), x, x);", "ambiguous"),
    ("", "y = exp(i);", "ambiguous"),
    ("", "y = simd_sum(x > 0);", "no matching function"),
    ("", "y = simd_shuffle(long(x), 3);", "no matching function"),
    ("#include <cmath>", "y = x;", "cmath"),
    ("struct S { virtual float f(); };", "y = x;", "no such word"),
    ("#define REAL double", "REAL d = x;", "no such word"),
    *(
        ("", statement, "no such word")
        for statement in (
            *("double d = x;", "goto end; end: y = x;", "thread_local float f;", "throw 1;"),
            *("float* p = new float[4];", "register int k = 0;", "auto t = typeid(x);"),
            *("try { y = x; } catch (int) {}", "auto p = dynamic_cast<float*>(&x);"),
            "y = std::numeric_limits<float>::max();",
        )
    ),
]


@pytest.mark.parametrize("top, statement, words", REFUSED)
def test_refused(cxx, top, statement, words):
    source = f"{top}\nkernel void k(device float* out, {LANE}) {{ float x = 1, y; {statement} }}"
    with pytest.raises(CompileError, match=words):
        run(cxx, source, {"out": np.zeros(32, np.float32)})


def test_names_of_metal_that_are_hidden(cxx):
    """By locals, parameters, members and namespaces; and overloads of its functions."""
    source = f"""
    namespace ours {{ inline float level(float bias) {{ return 2 * bias; }} }}
    struct Affine {{ float bias, level; }};
    template <int N> inline float normalize(thread const float* v) {{ return v[0] + N; }}
    kernel void k(device float* out, {LANE}) {{
      Affine access{{1, pow(2.0f, 3)}};
      float sampler[1] = {{max(float2(i), 5.0f).x}}, bias = access.bias + access.level;
      out[i] = ours::level(bias) + normalize<2>(sampler);
    }}"""
    out = np.zeros(32, np.float32)
    run(cxx, source, {"out": out})
    np.testing.assert_array_equal(out, 20 + np.maximum(np.arange(32), 5))


LANES = np.arange(32)


SIMD = [
    ("simd_sum(x)", lambda x: np.full(32, x.sum())),
    ("simd_product(x % 3 + 1)", lambda x: np.full(32, np.prod(x % 3 + 1, dtype=np.int32))),
    ("simd_max(x)", lambda x: np.full(32, x.max())),
    ("simd_min(x)", lambda x: np.full(32, x.min())),
    ("simd_and(x | 1)", lambda x: np.full(32, np.bitwise_and.reduce(x | 1))),
    ("simd_or(x)", lambda x: np.full(32, np.bitwise_or.reduce(x))),
    ("simd_xor(x)", lambda x: np.full(32, np.bitwise_xor.reduce(x))),
    ("simd_prefix_inclusive_sum(x)", np.cumsum),
    ("simd_prefix_exclusive_sum(x)", lambda x: np.cumsum(x) - x),
    ("simd_shuffle(x, ushort(31 - i))", lambda x: x[::-1]),
    ("simd_shuffle_xor(x, 5)", lambda x: x[LANES ^ 5]),
    ("simd_shuffle_down(x, 3)", lambda x: np.append(x[3:], x[-3:])),
    ("simd_shuffle_up(x, 3)", lambda x: np.append(x[:3], x[:-3])),
    ("simd_shuffle_rotate_down(x, 3)", lambda x: np.roll(x, -3)),
    ("simd_shuffle_rotate_up(x, 3)", lambda x: np.roll(x, 3)),
    ("simd_shuffle_and_fill_down(x, 7, 3)", lambda x: np.append(x[3:], [7] * 3)),
    ("simd_shuffle_and_fill_up(x, int(i), 2)", lambda x: np.append([30, 31], x[:-2])),
    ("simd_broadcast(x, 9)", lambda x: np.full(32, x[9])),
    ("simd_broadcast_first(x)", lambda x: np.full(32, x[0])),
    ("simd_any(x == 3)", lambda x: np.full(32, (x == 3).any())),
    ("simd_all(x >= 0)", lambda x: np.ones(32)),
    ("simd_is_first()", lambda x: LANES == 0),
    (
        "int(ulong(simd_ballot(i % 2 == 1)))",
        lambda x: np.full(32, np.int32(0xAAAAAAAA - 2**32)),
    ),
    ("quad_sum(x)", lambda x: np.repeat(x.reshape(8, 4).sum(1), 4)),
    ("quad_shuffle_xor(x, 1)", lambda x: x[LANES ^ 1]),
]


def test_simd_operations(cxx):
    x = RNG.integers(0, 9, size=32).astype(np.int32)
    for (expression, want), y in zip(SIMD, of_each(cxx, SIMD, x, "int"), strict=True):
        np.testing.assert_array_equal(y, want(x), err_msg=expression)


def test_simd_sum_is_a_tree(cxx):
    x = RNG.normal(size=32).astype(np.float32)
    y = per_lane(cxx, "y = simd_sum(x);", x, "float", np.float32)
    tree = x
    while tree.size > 1:
        tree = tree[::2] + tree[1::2]
    assert (y == tree).all()


@pytest.mark.parametrize("transposed", [False, True])
def test_simdgroup_matrix(cxx, transposed):
    flag = "true" if transposed else "false"
    source = f"""
    kernel void k(device const float* a, device const half* b, device float* c) {{
      simdgroup_float8x8 left, sum = make_filled_simdgroup_matrix<float, 8>(0.5f);
      simdgroup_half8x8 right;
      threadgroup half shared[64];
      for (int k = 0; k < 2; k++) {{
        simdgroup_load(left, a, 16, ulong2(8 * k, 0));
        simdgroup_load(right, b, {8 if transposed else 12}, ulong2(0, 8 * k), {flag});
        simdgroup_store(right, shared, 8);
        simdgroup_barrier(mem_flags::mem_threadgroup);
        simdgroup_load(right, shared, 8);
        simdgroup_barrier(mem_flags::mem_threadgroup);
        simdgroup_multiply_accumulate(sum, left, right, sum);
      }}
      simdgroup_store(sum, c, 8);
    }}"""
    a = RNG.normal(size=(8, 16)).astype(np.float32)
    b = RNG.normal(size=(16, 8)).astype(np.float16)
    if transposed:
        stored = np.concatenate([b[:8].T, b[8:].T]).copy()
    else:
        stored = np.zeros((16, 12), np.float16)
        stored[:, :8] = b
    c = np.zeros((8, 8), np.float32)
    run(cxx, source, {"a": a, "b": stored, "c": c})
    np.testing.assert_allclose(c, a @ b.astype(np.float32) + 0.5, rtol=1e-5, atol=1e-5)


def test_atomics(cxx):
    source = """
    kernel void k(device atomic_uint* total, device atomic_float* sum, device atomic_int* most,
                  device uint* order, uint i [[thread_position_in_grid]]) {
      threadgroup atomic_int count;
      if (i == 0) { atomic_store_explicit(&count, 0, memory_order_relaxed); }
      threadgroup_barrier(mem_flags::mem_threadgroup);
      atomic_fetch_add_explicit(&count, 2, memory_order_relaxed);
      order[atomic_fetch_add_explicit(total, 1u, memory_order_relaxed)] = i;
      atomic_fetch_add_explicit(sum, 0.5f, memory_order_relaxed);
      atomic_fetch_max_explicit(most, int(i), memory_order_relaxed);
      threadgroup_barrier(mem_flags::mem_threadgroup);
      int all = atomic_load_explicit(&count, memory_order_relaxed);
      uint none = 1000;
      if (i == 0 && atomic_compare_exchange_weak_explicit(
              total, &none, 5u, memory_order_relaxed, memory_order_relaxed)) { all = 0; }
      if (i == 0) { atomic_fetch_add_explicit(most, all + int(none), memory_order_relaxed); }
    }"""
    total, total_sum = np.zeros(1, np.uint32), np.zeros(1, np.float32)
    most, order = np.zeros(1, np.int32), np.zeros(128, np.uint32)
    args = {"total": total, "sum": total_sum, "most": most, "order": order}
    lib = Library.from_source(HEAD + source, check=2, cxx=cxx)
    result = lib.launch("k", args, grid=128, group=128, out=["order"])
    assert result.faults == []
    assert (total[0], total_sum[0], most[0]) == (128, 64, 127 + 256 + 128)
    assert sorted(order) == list(range(128))


def test_address_spaces_and_overloads(cxx):
    source = f"""
    constant float table[] = {{1, 2, 3, 4}};
    constant constexpr int shift = 1;
    inline float pick(device const float* p, uint i) {{ return p[i]; }}
    inline float pick(constant float* p, uint i) {{ return p[i]; }}
    inline float pick(threadgroup const float* p, uint i) {{ return p[i]; }}
    struct Pair {{
      float a, b;
      Pair() thread : a(1), b(2) {{}}
      Pair() threadgroup : a(1), b(2) {{}}
      float sum() const thread {{ return a + b; }}
      float sum() const constant {{ return a + b; }}
      template <typename T> T scaled(T by) const {{ return T(sum()) * by; }}
    }};
    template <typename T> struct Target;
    template <typename T> struct Target<device T*> {{ typedef T type; }};
    template <typename T> struct Target<threadgroup T*> {{ typedef T type; }};
    namespace inner {{ enum class Kind : uint {{ one, two }}; }}
    kernel void k(device const float* x, device float* y, {LANE}) {{
      threadgroup float shared[4] = {{0}}, other;
      if (i < 4) {{ shared[i] = table[(i + shift) % 4]; }}
      if (i == 0) {{ other = Pair().scaled(2.0f); }}
      threadgroup_barrier(mem_flags::mem_threadgroup);
      typename Target<device float*>::type z = pick(x, i);
      y[i] = z + pick(table, i % 4) + pick(shared, i % 4) + other + uint(inner::Kind::two);
    }}"""
    x, y = RNG.normal(size=32).astype(np.float32), np.zeros(32, np.float32)
    run(cxx, source, {"x": x, "y": y})
    table = np.array([1, 2, 3, 4], np.float32)
    want = ((x + table[LANES % 4]) + np.roll(table, -1)[LANES % 4] + np.float32(6)) + np.float32(1)
    np.testing.assert_array_equal(y, want)


def test_member_specialized_in_its_class(cxx):
    source = f"""
    struct Twice {{
      template <typename T> T operator()(T x) {{ return x + x; }}
      template <> float operator()(float x) {{ return 2 * x + 1; }}
    }};
    kernel void k(device const float* in, device float* y, {LANE}) {{
      y[i] = Twice()(in[i]) + Twice()(int(i));
    }}"""
    x, y = RNG.normal(size=32).astype(np.float32), np.zeros(32, np.float32)
    run(cxx, source, {"in": x, "y": y})
    np.testing.assert_array_equal(y, 2 * x + 1 + 2 * LANES.astype(np.float32))


def test_host_names_of_plain_kernels(cxx):
    source = """
    [[kernel]] [[host_name("other")]] void one(device int* y) { y[0] = 1; }
    namespace space { kernel void two(device int* y) { y[0] = 2; } }
    using namespace space;
    template <int N, bool B = (N > 3)> kernel void many(device int* y) { y[0] = B ? N : -N; }
    template [[host_name("many_3")]] [[kernel]] decltype(many<3>) many<3>;
    template [[host_name("many_4")]] [[kernel]] decltype(many<4>) many<4>;
    """
    lib = library(source, cxx)
    assert lib.kernels() == ["many_3", "many_4", "other", "two"]
    for kernel, want in {"many_3": -3, "many_4": 4, "other": 1, "two": 2}.items():
        y = np.zeros(1, np.int32)
        run(cxx, source, {"y": y}, 1, kernel)
        assert y[0] == want
