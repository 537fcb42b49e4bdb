"""Which mentions of an argument that function constants leave out are faults."""

import numpy as np
import pytest

from metalsim import Library

pytestmark = pytest.mark.instrument

TOP = """
#include <metal_stdlib>
using namespace metal;
constant bool has_w [[function_constant(0)]];
constant int n [[function_constant(1)]];
constant float f [[function_constant(2)]];
constant bool both = has_w && n > 1;
constant bool odd = (n & 1) != 0;
template <int N>
inline float first(device const float* p) { return p[0]; }
struct S { float w; };
kernel void k(
    device const float* x [[buffer(0)]],
    device const float* w [[buffer(1), function_constant(has_w)]],
    device float* y [[buffer(2)]],
    uint i [[thread_position_in_grid]]) {
"""
LINE = TOP.count("\n") + 1

# Gone without w: has_w is false, n 0, and f not defined.
GONE = [
    "if (has_w) { y[i] = w[i]; }",
    "if (has_w && i > 3) y[i] = w[i]; else y[i] = x[i];",
    "if (!has_w) { y[i] = x[i]; } else { y[i] = w[i]; }",
    "if (!has_w || i > 3) { return; } y[i] = x[i] + 0;",
    "if (!has_w) { y[i] = 1; return; } y[i] = w[i];",
    "y[i] = has_w ? w[i] : x[i];",
    "y[i] = i > 3 ? 1.0f : has_w ? w[i] : 0.0f;",
    "y[i] = both ? w[0] : n == 2 ? w[1] : 0.0f;",
    "y[i] = odd || n + 1 > 2 || (n & 3) == 1 ? w[0] : 0.0f;",
    "bool b = has_w && w[i] > 0;",
    "bool b = !has_w || w[i] > 0;",
    "const bool there = has_w && i > 0; if (there) { y[i] = w[i]; }",
    "const bool gone = !has_w || i < 9 || n > 0; y[i] = gone ? 0.0f : w[i];",
    "for (uint j = 0; has_w && j < 4; ++j) { y[j] = w[j]; }",
    "while (has_w) { y[i] = w[i]; }",
    "y[i] = has_w ? first<4>(w) : first<2>(x);",
    "if (is_function_constant_defined(f)) { y[i] = w[i]; }",
    "S s; s.w = 1; y[i] = s.w;",
    "switch (i) { case 0: y[i] = 1; break; default: if (has_w) y[i] = w[i]; }",
    "if (has_w) { switch (i) { case 0: y[i] = w[i]; break; default: y[i] = w[0]; } }",
    "for (;;) { if (!has_w) break; y[i] = w[i]; }",
]
NAMED = [
    "device const float* p = w;",
    "S s{w[0]};",
    "y[i] = first<1>(w);",
    "if (i > 3) { y[i] = w[i]; }",
    "if (has_w || i > 3) { y[i] = w[i]; }",
    "if (!has_w) { y[i] = w[i]; }",
    "y[i] = has_w ? x[i] : w[i];",
    "y[i] = n == 0 ? w[i] : x[i];",
    "bool there = has_w && i > 0; if (there) { y[i] = w[i]; }",
    "if (has_w) { y[i] = 0; } y[i] = w[i];",
    "if (i > 3) { return; } y[i] = w[i];",
    "switch (i) { case 0: return; case 1: y[i] = w[i]; }",
    "do { y[i] = w[i]; } while (has_w);",
    "for (uint j = i; j < 4; ++j) y[j] = w[j];",
    "{ const bool has_w = true; } const bool a = true; if (a) { y[i] = w[i]; }",
    "const int* p = 0; if (p) { y[i] = w[i]; }",
]


def faults(statement, check=1, **launch):
    library = Library.from_source(f"{TOP}{statement}\n}}\n", name="k.metal", check=check)
    arrays = {"x": np.ones(8, np.float32), "y": np.zeros(8, np.float32)}
    return library.launch("k", arrays, grid=4, group=4, **launch).faults


@pytest.mark.parametrize("statement", GONE)
def test_gone(statement):
    assert faults(statement) == []


@pytest.mark.parametrize("statement", NAMED)
def test_named(statement):
    (fault,) = (f for f in faults(statement) if f.kind == "absent argument")
    assert (fault.file, fault.line, fault.buffer) == ("k.metal", LINE, "w")
    assert str(fault).startswith(f"k.metal:{LINE}: absent argument in 'k': 'w' is named")


def test_level_0_does_not_look():
    assert faults("device const float* p = w;", check=0) == []


def test_an_argument_that_is_there_may_be_named():
    text = f"{TOP}y[i] = w[i];\n}}\n"
    library = Library.from_source(text, check=1)
    arrays = {name: np.ones(8, np.float32) for name in "xwy"}
    for constants in ({"has_w": True}, {0: np.bool_(True)}):
        result = library.launch("k", arrays, grid=4, group=4, constants=constants)
        assert result.faults == []
