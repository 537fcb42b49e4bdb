"""The whole chain, where its packages can be had."""

import pytest

from agx import packages
from agx.measure import Specialization, measure

pytestmark = [pytest.mark.instrument, pytest.mark.build]

TEXT = """
#include <metal_stdlib>
using namespace metal;

constant int held [[function_constant(0)]];

template <int N>
inline float sum(device const float* x, uint lane) {
  float v[N];
  _Pragma("clang loop unroll(full)") for (int i = 0; i < N; ++i) {
    v[i] = x[lane + 32 * i];
  }
  float of_squares = 0.0f;
  _Pragma("clang loop unroll(full)") for (int i = 0; i < N; ++i) {
    of_squares = fma(v[i], v[i], of_squares);
  }
  of_squares = simd_sum(of_squares);
  float result = 0.0f;
  _Pragma("clang loop unroll(full)") for (int i = 0; i < N; ++i) {
    result = fma(v[i], rsqrt(of_squares), result) * v[i];
  }
  return result;
}

[[kernel]] void squares(
    device const float* x [[buffer(0)]],
    device float* y [[buffer(1)]],
    uint lane [[thread_index_in_simdgroup]]) {
  threadgroup float total[8];
  if (lane < 8) {
    total[lane] = x[lane];
  }
  threadgroup_barrier(mem_flags::mem_threadgroup);
  y[lane] = total[lane % 8] + (held == 0 ? sum<4>(x, lane) : sum<128>(x, lane));
}

[[kernel]] void indexed(
    device const int* x [[buffer(0)]],
    device int* y [[buffer(1)]],
    uint at [[thread_position_in_grid]]) {
  int v[8];
  for (int i = 0; i < 8; ++i) {
    v[i] = x[8 * at + i];
  }
  y[at] = v[x[at] & 7];
}

[[kernel]] void stepped(
    device const float* x [[buffer(0)]],
    device float* y [[buffer(1)]],
    uint at [[thread_position_in_grid]]) {
  float v[8];
  _Pragma("clang loop unroll(full)") for (int i = 0; i < 8; ++i) {
    v[i] = x[8 * at + i];
  }
  _Pragma("clang loop unroll(full)") for (int i = 0; i < 8; i += held) {
    y[at] += v[i];
  }
}
"""


@pytest.fixture(scope="module")
def tree():
    try:
        return packages.tree()
    except packages.Unavailable as error:
        pytest.skip(f"instrument missing: Debian's packages of Mesa: {error}")


def measured(tree, kernel, group=(32, 1, 1), **constants):
    of = Specialization("text", kernel, tuple(constants.items()), group, True)
    (one,) = measure(tree, {"text": TEXT}, [of], ["g13g", "g14g"])
    return one.by_chip


def test_registers_spills_and_memory_of_a_threadgroup_are_told(tree):
    few = measured(tree, "squares")["g13g"]
    assert few.spills == 0 and few.threads_per_core == 1024 and few.half_registers < 64
    assert few.threadgroup_bytes == 32
    assert few.classes["barrier"] == 1 and few.classes["simd"] >= 1
    assert sum(few.classes.values()) == few.instructions


def test_more_than_the_registers_hold_spills(tree):
    many = measured(tree, "squares", group=(1024, 1, 1), held=1)["g14g"]
    assert many.spills > 0 and many.fills > 0


def test_an_array_in_memory_is_refused(tree):
    assert "private arrays" in measured(tree, "indexed")["g13g"]


def test_an_array_indexed_by_a_function_constant_is_refused_whatever_its_value(tree):
    refused = measured(tree, "stepped", held=2)["g13g"]
    assert "private arrays" in refused and "constants are not known" in refused
