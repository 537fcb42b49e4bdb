"""metal::fast, off by what Metal permits."""

import shutil

import numpy as np
import pytest

from metalsim import Library

pytestmark = pytest.mark.instrument

POSITIVE = np.linspace(0.01, 30, 1000, dtype=np.float32)
UNIT = np.linspace(-0.99, 0.99, 1000, dtype=np.float32)
ANY = np.linspace(-3.1, 3.1, 1000, dtype=np.float32)


def ulps(y):
    return np.spacing(np.abs(y).astype(np.float32))


def of_exp(x, y):
    return (3 + np.floor(np.abs(2 * x))) * ulps(y)


def of_log(x, y):
    return np.where((x >= 0.5) & (x <= 2), 2.0**-21, 3 * ulps(y))


# The function in float64, its arguments, and what it may be off by.
BOUNDED = {
    "sin": (np.sin, ANY, lambda x, y: 2.0**-13),
    "cos": (np.cos, ANY, lambda x, y: 2.0**-13),
    "sinpi": (lambda x: np.sin(np.pi * x), UNIT, lambda x, y: 2.0**-13),
    "cospi": (lambda x: np.cos(np.pi * x), UNIT, lambda x, y: 2.0**-13),
    "exp": (np.exp, ANY, of_exp),
    "exp2": (np.exp2, ANY, of_exp),
    "log": (np.log, POSITIVE, of_log),
    "log2": (np.log2, POSITIVE, of_log),
    "log10": (np.log10, POSITIVE, of_log),
    "rsqrt": (lambda x: x**-0.5, POSITIVE, lambda x, y: 2 * ulps(y)),
    "asin": (np.arcsin, UNIT, lambda x, y: 5 * ulps(y)),
    "acos": (np.arccos, UNIT, lambda x, y: 5 * ulps(y)),
    "atan": (np.arctan, ANY, lambda x, y: 5 * ulps(y)),
}
COMPOSED = {
    "tan": (np.tan, UNIT),
    "exp10": (lambda x: 10**x, ANY),
    "sqrt": (np.sqrt, POSITIVE),
    "sinh": (np.sinh, ANY),
    "cosh": (np.cosh, ANY),
    "tanh": (np.tanh, ANY),
    "asinh": (np.arcsinh, ANY),
    "acosh": (np.arccosh, POSITIVE + 1),
    "atanh": (np.arctanh, UNIT),
    "pow(x, 2.5f)": (lambda x: x**2.5, POSITIVE),
    "divide(x, 3.0f)": (lambda x: x / 3, ANY),
}


@pytest.fixture(scope="module", params=["clang++-16", "g++"])
def values(request):
    """The values of a function at x in a namespace, off by so much of what is permitted."""
    if not shutil.which(request.param):
        pytest.skip(f"instrument missing: {request.param}")
    calls = [name if "(" in name else f"{name}(x)" for name in (*BOUNDED, *COMPOSED)]
    text = "".join(
        f"kernel void {space}_{n}(device const float* in, device float* out,"
        f" uint i [[thread_position_in_grid]]) {{ float x = in[i]; out[i] = {space}::{call}; }}\n"
        for space in ("fast", "precise")
        for n, call in enumerate(calls)
    )
    text = f"#include <metal_stdlib>\nusing namespace metal;\n{text}"
    library = Library.from_source(text, check=1, cxx=request.param)
    names = [*BOUNDED, *COMPOSED]

    def values(space, name, x, by):
        out = np.empty_like(x)
        kernel = f"{space}_{names.index(name)}"
        result = library.launch(kernel, {0: x, 1: out}, grid=x.size, group=100, fast_error=by)
        assert result.faults == [] and result.bytes["in"] == (x.nbytes, 0)
        return out

    return values


@pytest.mark.parametrize("name", BOUNDED)
def test_off_by_what_is_permitted(values, name):
    function, x, permitted = BOUNDED[name]
    y = function(x.astype(np.float64))
    exact = values("precise", name, x, 1)
    assert (values("fast", name, x, 0) == exact).all()
    for by in (1, 3):
        off = values("fast", name, x, by)
        assert (off == values("fast", name, x, by)).all()
        ratio = (off - y) / permitted(x, y)
        assert 0.7 * by < np.abs(ratio).max() < by + 1.5  # rounded twice
        assert 0.3 < (ratio > 0).mean() < 0.7


@pytest.mark.parametrize("name", COMPOSED)
def test_off_by_what_it_is_computed_by(values, name):
    function, x = COMPOSED[name]
    exact, off = (values("fast", name, x, by) for by in (0, 1))
    assert (exact == values("precise", name, x, 1)).all()
    assert (exact != off).mean() > 0.5
    near_zero = 2e-4 if name == "tan" else 2e-6
    np.testing.assert_allclose(off, function(x.astype(np.float64)), rtol=3e-3, atol=near_zero)


def test_far_angles_are_off_by_more(values):
    x = np.linspace(100, 200, 100, dtype=np.float32)
    off = values("fast", "cos", x, 1) - np.cos(x.astype(np.float64))
    assert 50 * 2.0**-13 < np.abs(off).max() < 70 * 2.0**-13
    x = np.full(100, -200, np.float32)
    assert (values("fast", "exp", x, 1) == 0).all()
    assert (values("fast", "exp", -x, 1) == np.inf).all()
