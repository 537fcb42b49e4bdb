"""norm_add_norm: h = residual + norm(x) and the norm of h, bit-identical to the chain."""

import itertools
import re

import mlx.core as mx
import pytest

import mlx_norms
from support import inputs
from support.bits import assert_same_bits
from support.norm_add_norm import (
    Case,
    all_mixes,
    arrays_of,
    assert_is_the_chain,
    call,
    cotangents_of,
)
from support.norm_case import DTYPES

pytestmark = pytest.mark.usefixtures("backend", "no_fusion")


def test_every_length():
    for length in (*range(1, 301, 7 if inputs.SLOW else 1), 768, 1152, 3072):
        for dtype in inputs.in_turn(DTYPES, length):
            rows = (1, 3, 17)[length % 3]
            Case(arrays_of((rows, length), dtype)).check()


def test_mixed_dtypes_and_options():
    for x, others in all_mixes(DTYPES):
        arrays = arrays_of((3, 48), x, others=others)
        for rounding in ("early", "late"):
            Case(arrays, rounding=rounding).check()
        Case(arrays, weight_offset=1.0, eps=0.5).check()
    for dtype, to in itertools.product(DTYPES, DTYPES):
        Case(arrays_of((3, 33), dtype), dtype=to).check()


@pytest.mark.parametrize("without", ["post_weight", "weight", "both"])
def test_without_a_weight(without):
    without = ("post_weight", "weight") if without == "both" else (without,)
    for length, dtype in itertools.product((7, 64, 1000), DTYPES):
        arrays = arrays_of((5, length), dtype, without=without)
        assert_is_the_chain(arrays)
        for rounding in ("early", "late"):
            Case(arrays, rounding=rounding).check()


def test_early_is_the_chain():
    for length in (1, 7, 64, 130, 1000, 4096, 8192, 20000):
        for x, others in inputs.in_turn(all_mixes(DTYPES), length):
            arrays = arrays_of((3, length), x, others=others)
            assert_is_the_chain(arrays, rounding="early")
            assert_is_the_chain(arrays, rounding="early", weight_offset=0.75, eps=1e-3)
            assert_is_the_chain(arrays, clamp=True, dtype=mx.float16)


def test_late_rounds_once():
    """What is added is x's norm in float32."""
    for length, dtype in itertools.product((8, 33, 1000), (mx.float16, mx.bfloat16)):
        arrays = arrays_of((5, length), dtype)
        y, h = call(arrays, rounding="late")
        x, w = arrays["x"], arrays["post_weight"]
        n = mlx_norms.rms_norm(x, w, rounding="late", dtype=mx.float32)
        total = (arrays["residual"].astype(mx.float32) + n).astype(dtype)
        assert_same_bits(h, total, f"{length} {dtype}")
        wanted = mlx_norms.rms_norm(h, arrays["weight"], rounding="late")
        assert_same_bits(y, wanted, f"{length} {dtype}")


def test_clamp():
    for length in (8, 33):
        arrays = arrays_of((4, length), mx.float16)
        arrays["residual"] = mx.clip(arrays["residual"] * 60000, -65000, 65000)
        arrays["post_weight"] = arrays["post_weight"] * 4000
        h = call(arrays)[1]
        assert mx.any(mx.isinf(h))
        for rounding in ("early", "late"):
            y, h = call(arrays, clamp=True, rounding=rounding)
            assert mx.all(mx.isfinite(h)) and mx.any(mx.abs(h) == 65504)
            Case(arrays, clamp=True, rounding=rounding).check()
        assert_is_the_chain(arrays, clamp=True)
        # Of what saturates, nothing depends on x.
        tangents = [mx.ones_like(a) / 128 for a in arrays.values()]
        for rounding in ("early", "late"):
            case = Case(arrays, clamp=True, rounding=rounding)
            _, (_, dh) = mx.jvp(case.function, list(arrays.values()), tangents)
            assert mx.all(mx.where(mx.abs(h) == 65504, dh == 0, True))


def test_shapes():
    for shape in ((5,), (0, 4), (2, 0), (2, 0, 8), (2, 3, 4, 33)):
        for dtype in DTYPES:
            Case(arrays_of(shape, dtype)).check()


def test_many_rows():
    for length, rows in ((8, 3000), (64, 600), (257, 513)):
        for dtype in (mx.float32, mx.bfloat16):
            if not (inputs.SLOW and length > 64):
                Case(arrays_of((rows, length), dtype)).check()


def test_gradients_are_those_of_one_norm_after_another():
    """The sum's rounded gradient is the cotangent of x's norm."""
    for length, dtype in itertools.product((1, 7, 33, 64, 200, 1000, 4096), DTYPES):
        arrays = arrays_of((5, length), dtype)
        x, residual, post_weight, weight = arrays.values()
        cots = cotangents_of(arrays)
        got = mx.vjp(Case(arrays).function, list(arrays.values()), cots)[1]
        n = mlx_norms.rms_norm(x, post_weight)
        of_sum = mx.vjp(mlx_norms.add_rms_norm, [n, residual, weight], cots)[1][1]
        of_x = mx.vjp(mlx_norms.rms_norm, [x, post_weight], [of_sum])[1][0]
        assert_same_bits(got[1], of_sum, f"{length} {dtype}")
        assert_same_bits(got[0], of_x, f"{length} {dtype}")


def test_unused_norm_of_what_is_not_finite():
    """Where only the sum is used, a norm of infinities takes no part in the gradient."""
    arrays = arrays_of((2, 8), mx.float32)
    arrays["residual"] = mx.full((2, 8), mx.inf)
    gradient = mx.grad(lambda x: call(arrays | {"x": x})[1].sum())(arrays["x"])
    assert mx.all(mx.isfinite(gradient))


def test_compiled_for_shorter_rows():
    """A shapeless function takes rows, later, that one launch does not hold."""
    for dtype, without in itertools.product(DTYPES, ((), ("post_weight",), ("weight",))):
        arrays = arrays_of((3, 64), dtype, without=without)

        def gradients(*a, names=tuple(arrays)):
            f = Case(dict(zip(names, a, strict=True))).function
            return mx.vjp(f, a, f(*a))[1]

        compiled = mx.compile(gradients, shapeless=True)
        for length in (64, 20000):
            given = list(arrays_of((3, length), dtype, without=without, seed=length).values())
            for got, want in zip(compiled(*given), gradients(*given), strict=True):
                assert_same_bits(got, want, f"{length} {dtype} {without}")


def test_one_launch(launches):
    for length, dtype in itertools.product((33, 64, 20000), DTYPES):
        arrays = arrays_of((2, length), dtype)
        mx.eval(list(arrays.values()))
        assert len(launches(*call(arrays))) == 1, f"{length} {dtype}"
    # A sum of 32 bits of an x of 16: late it is one, too.
    arrays = arrays_of((2, 64), mx.bfloat16, others=dict(residual=mx.float32))
    mx.eval(list(arrays.values()))
    assert len(launches(*call(arrays, rounding="late"))) == 1


def test_gradients_in_one_launch(launches):
    """And one that adds up the partial sums of both weights' gradients."""
    for length, dtype in itertools.product((1, 33, 64, 1000, 4096), DTYPES):
        arrays = arrays_of((20, length), dtype)
        cots = cotangents_of(arrays)
        outputs, gradients = mx.vjp(Case(arrays).function, list(arrays.values()), cots)
        mx.eval(outputs, cots)
        assert kernels_of(launches(*gradients)) == ["norm_add_norm_vjp", "sum_partials"], length
    # Rows that are too long to hold, or of two types.
    for arrays in (
        arrays_of((20, 20000), mx.float32),
        arrays_of((20, 64), mx.float16, others=dict(residual=mx.float32)),
    ):
        cots = cotangents_of(arrays)
        f = Case(arrays, rounding="late").function
        gradients = mx.vjp(f, list(arrays.values()), cots)[1]
        assert kernels_of(launches(*gradients)).count("norm_vjp") == 2


def kernels_of(launches):
    return [re.sub(r"(_\d+)+$", "", launch.kernel) for launch in launches]


def test_what_is_refused():
    x, w = mx.ones((2, 4)), mx.ones(4)
    f = mlx_norms.norm_add_norm
    refused = [
        (dict(x=mx.ones(())), "x"),
        (dict(x=mx.ones((2, 4), mx.int32)), "x"),
        (dict(residual=mx.ones((4, 2))), "residual"),
        (dict(residual=mx.ones((2, 4), mx.int32)), "residual"),
        (dict(post_weight=mx.ones(3)), "post_weight"),
        (dict(post_weight=mx.ones((2, 4))), "post_weight"),
        (dict(post_weight=mx.ones(4, mx.int32)), "post_weight"),
        (dict(weight=mx.ones(5)), "weight"),
        (dict(eps=-1.0), "eps"),
        (dict(rounding="never"), "rounding"),
        (dict(dtype=mx.int32), "dtype"),
        (dict(weight_offset=1.0, weight=None), "weight_offset"),
        (dict(weight_offset=1.0, post_weight=None), "weight_offset.*post_weight"),
    ]
    for wrong, name in refused:
        arguments = dict(x=x, residual=x, post_weight=w, weight=w) | wrong
        with pytest.raises(ValueError, match=rf"^\[norm_add_norm\] {name}\b"):
            f(**arguments)
