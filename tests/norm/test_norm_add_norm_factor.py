"""norm_add_norm with a factor of x's norm: h = residual + factor * norm(x), and the norm of h."""

import itertools

import mlx.core as mx
import pytest

import mlx_norms
from support import inputs
from support.bits import assert_same_bits
from support.checks import check_refused_factors
from support.inputs import normal
from support.norm_add_norm import (
    Case,
    arrays_of,
    assert_is_the_chain,
    call,
)
from support.norm_case import DTYPES

pytestmark = pytest.mark.usefixtures("backend", "no_fusion")

SHAPE = (2, 3, 5)
FORMS = {
    "all": (),
    "sample": (2, 1, 1),
    "frame": (2, 3, 1),
    "token": (2, 3, 5),
    "place": (5,),
    "between": (2, 1, 5),
}


def factored(shape, dtype, form="all", *, factor=None, **options):
    """Arrays with a factor of a form, which is theirs in float32 too."""
    arrays = arrays_of(shape, dtype, **options)
    leading = FORMS[form]
    return arrays | {
        "factor": normal((*leading, shape[-1]), factor or dtype, seed=(form, 7), std=0.5)
    }


def test_every_length():
    for length in (*range(1, 301, 37 if inputs.SLOW else 5), 768, 1152, 3072):
        for dtype in inputs.in_turn(DTYPES, length):
            Case(factored((3, length), dtype)).check()
            Case(arrays_of((3, length), dtype), factor=-0.3).check()


@pytest.mark.parametrize("length", [4097, 8192, 20000])
def test_long_rows(length):
    for dtype in inputs.in_turn(DTYPES, length):
        Case(factored((2, length), dtype)).check()
        assert_is_the_chain(factored((2, length), dtype))


@pytest.mark.parametrize("form", FORMS)
def test_forms(form):
    for length, dtype in itertools.product((7, 64) if inputs.SLOW else (1, 7, 33, 64, 130), DTYPES):
        for without in ((), ("post_weight",), ("weight",)):
            arrays = factored((*SHAPE, length), dtype, form, without=without)
            Case(arrays).check()
            assert_is_the_chain(arrays)


def test_dtypes_and_options():
    for x, residual, factor in itertools.product(DTYPES, repeat=3):
        arrays = factored((3, 48), x, factor=factor, others=dict(residual=residual))
        assert_is_the_chain(arrays)
        for rounding in ("early", "late"):
            Case(arrays, rounding=rounding).check()
        plain = arrays_of((3, 48), x, others=dict(residual=residual))
        assert_is_the_chain(plain, factor=0.3)
        Case(plain, rounding="late", factor=0.3).check()
    for dtype, to in itertools.product(DTYPES, DTYPES):
        Case(factored((3, 33), dtype), dtype=to, weight_offset=1.0).check()
        Case(factored((3, 33), dtype), clamp=True).check()


def test_is_add_rms_norm_of_the_norm():
    for dtype in DTYPES:
        arrays = factored((3, 130), dtype)
        n = mlx_norms.rms_norm(arrays["x"], arrays["post_weight"])
        want = mlx_norms.add_rms_norm(
            n, arrays["residual"], arrays["weight"], factor=arrays["factor"]
        )
        for a, b in zip(call(arrays), want, strict=True):
            assert_same_bits(a, b, str(dtype))


def test_number_that_is_one_is_none():
    arrays = arrays_of((3, 64), mx.bfloat16)
    for got, want in zip(call(arrays, factor=1.0), call(arrays), strict=True):
        assert_same_bits(got, want)


@pytest.mark.parametrize("shapeless", [False, True])
def test_compiled(shapeless):
    def f(x, residual, weight, factor):
        of = mlx_norms.norm_add_norm
        return [
            *of(x, residual, weight, weight, factor=factor),
            *of(x, residual, weight, weight, factor=0.3),
            *of(x, residual, weight, weight, factor=0.4),
            *of(x, residual, weight, weight),
        ]

    compiled = mx.compile(f, shapeless=shapeless)
    gradient = mx.grad(lambda *a: sum(mx.sin(y).sum() for y in f(*a)), argnums=(0, 1, 2, 3))
    compiled_gradient = mx.compile(gradient, shapeless=shapeless)
    for length in (64, 33, 5000):
        arrays = factored((2, 3, 5, length), mx.float32, "sample", without=("weight",))
        given = list(arrays.values())
        for got, want in zip(compiled(*given), f(*given), strict=True):
            assert_same_bits(got, want, str(length))
        for got, want in zip(compiled_gradient(*given), gradient(*given), strict=True):
            assert mx.allclose(got, want, 1e-4, 1e-4), length


def test_one_launch(launches):
    for form in ("all", "sample", "token"):
        arrays = factored((2, 3, 5, 64), mx.bfloat16, form)
        mx.eval(list(arrays.values()))
        assert len(launches(*call(arrays))) == 1, form
    arrays = arrays_of((2, 20000), mx.float32)
    mx.eval(list(arrays.values()))
    assert len(launches(*call(arrays, factor=0.5))) == 1


def test_what_is_refused():
    check_refused_factors("norm_add_norm")
