"""add_rms_norm and add_layer_norm with a factor of x, a scale and a shift."""

import itertools

import mlx.core as mx
import pytest

import mlx_norms
from support import inputs
from support.bits import assert_same_bits
from support.checks import check_refused_factors, check_with_gradients
from support.inputs import arguments, cotangents, normal
from support.norm_case import DTYPES, Norm

pytestmark = pytest.mark.usefixtures("backend")

OPS = ("add_rms_norm", "add_layer_norm")
OF_OP = pytest.mark.parametrize("op", OPS)
NUMBERS = (0.25, -1.3, 0.0, 1.0)
FORMS = {
    "all": (1,),
    "sample": (2, 1, 1),
    "frame": (2, 3, 1),
    "token": (2, 3, 5),
    "place": (5,),
    "middle": (1, 3, 1),
    "between": (2, 1, 5),
}
SHAPE = (2, 3, 5)


def arrays_of(op, length, dtype, form=None, *, more=(), others=None, shape=SHAPE, plain=True):
    """x, residual and a factor of a form; ``more`` names scale and shift, of a sample."""
    without = ("weight", "bias") if plain else ()
    arrays = arguments(Norm(op), (*shape, length), dtype, without=without, others=others)
    for i, name in enumerate(("factor", *more)):
        of = form if name == "factor" else "sample"
        if of:
            leading = () if of == "all" else FORMS[of]
            to = (others or {}).get(name, dtype)
            arrays[name] = normal((*leading, length), to, seed=(i, of), std=0.5)
    return arrays


@OF_OP
def test_numbers(op):
    for length, number, dtype in itertools.product((1, 7, 33, 64, 1000), NUMBERS, DTYPES):
        check_with_gradients(Norm(op, factor=number), arrays_of(op, length, dtype))
        options = dict(rounding="late", clamp=True)
        arrays = arrays_of(op, length, dtype, plain=False)
        check_with_gradients(Norm(op, factor=number, **options), arrays)


@pytest.mark.parametrize("form", FORMS)
@OF_OP
def test_forms(op, form):
    for length, dtype in itertools.product((7, 64) if inputs.SLOW else (1, 7, 33, 64, 130), DTYPES):
        for plain, more in ((True, ()), (False, ("scale", "shift")), (True, ("scale", "shift"))):
            check_with_gradients(
                Norm(op), arrays_of(op, length, dtype, form, more=more, plain=plain)
            )


@OF_OP
def test_many_rows(op):
    for form, length in (("sample", 64), ("all", 1000), ("token", 64)):
        leading = {"sample": (3, 1), "all": (), "token": (3, 100 if inputs.SLOW else 600)}[form]
        arrays = arguments(Norm(op), (3, 100 if inputs.SLOW else 600, length), mx.float32)
        arrays["factor"] = normal((*leading, length), mx.float32, seed=1)
        check_with_gradients(Norm(op), arrays)


def chain(norm, arrays):
    """What MLX's ops and our norm make of it."""
    x, residual = arrays["x"], arrays["residual"]
    factor = arrays.get("factor")
    h = residual + (norm.factor if factor is None else factor) * x
    h = h.astype(norm.sum_dtype(arrays))
    one = Norm(norm.op.removeprefix("add_"), dtype=norm.out_dtype(arrays), rounding=norm.rounding)
    rest = {n: a for n, a in arrays.items() if n not in ("x", "residual", "factor")}
    return [*one({"x": h, **rest}), h]


@OF_OP
def test_early_is_the_chain_of_ops(op):
    for x, residual, factor in itertools.product(DTYPES, repeat=3):
        others = dict(residual=residual, factor=factor)
        for length, form, more in ((7, "token", ()), (130, "sample", ("scale", "shift"))):
            for of in (form, None):
                norm = Norm(op, rounding="early", factor=None if of else 0.3)
                arrays = arrays_of(op, length, x, of, more=more, others=others)
                for got, want in zip(norm(arrays), chain(norm, arrays), strict=True):
                    assert_same_bits(got, want, f"{op}, {x}, {residual}, {factor}, {of}")


def test_number_that_is_one_is_none():
    for op, dtype in itertools.product(OPS, DTYPES):
        arrays = arrays_of(op, 64, dtype)
        for got, want in zip(Norm(op, factor=1.0)(arrays), Norm(op)(arrays), strict=True):
            assert_same_bits(got, want, op)


@OF_OP
def test_scale_and_shift_alone(op):
    for dtype, plain in itertools.product(DTYPES, (True, False)):
        arrays = arrays_of(op, 64, dtype, more=("scale", "shift"), plain=plain)
        check_with_gradients(Norm(op), arrays)
        check_with_gradients(Norm(op, clamp=True), arrays)


@OF_OP
def test_one_launch(op, launches):
    """Forward one launch; backward one for the norm and one for the factor."""
    for form in ("sample", "token"):
        arrays = arrays_of(op, 64, mx.float32, form, more=("scale", "shift"))
        mx.eval(list(arrays.values()))
        outputs = Norm(op)(arrays)
        assert len(launches(*outputs)) == 1, form
        cots = cotangents(Norm(op), arrays)
        mx.eval(cots)
        outputs, gradients = Norm(op).vjp(arrays, cots)
        mx.eval(outputs)
        assert len(launches(*gradients)) == 2, form


@OF_OP
def test_what_is_refused(op):
    f = getattr(mlx_norms, op)
    x = mx.ones((2, 3, 4))
    check_refused_factors(op)
    for name in ("scale", "shift"):
        with pytest.raises(ValueError, match=rf"^\[{op}\] {name}\b.*\(2,3,4\)"):
            f(x, x, **{name: mx.ones((3, 1, 4))})
