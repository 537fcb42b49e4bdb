"""Every op, length, number of rows and dtype against the float64 oracle."""

import itertools

import pytest

from support.checks import check
from support.inputs import LENGTHS, arguments, dtype_pairs, mixed_dtypes, rows_for
from support.norm_case import DTYPES, OPS, Norm

pytestmark = pytest.mark.usefixtures("backend")


@pytest.mark.parametrize("length", LENGTHS)
@pytest.mark.parametrize("op", OPS)
def test_one_dtype(op, length):
    for rows, dtype in itertools.product(rows_for(length), DTYPES):
        check(Norm(op), arguments(Norm(op), (rows, length), dtype))


@pytest.mark.parametrize("length", LENGTHS)
@pytest.mark.parametrize("op", OPS)
def test_weight_of_another_dtype(op, length):
    norm = Norm(op)
    for n, (x, weight) in itertools.product(rows_for(length, many_up_to=1025), dtype_pairs(length)):
        check(norm, arguments(norm, (n, length), x, others=mixed_dtypes(norm, x, weight)))


@pytest.mark.parametrize("op", ["add_rms_norm", "add_layer_norm"])
def test_residual_of_another_dtype(op):
    for length, (x, r) in itertools.product((1, 33, 1025), itertools.permutations(DTYPES, 2)):
        for weight in DTYPES:
            others = {"residual": r, "weight": weight}
            check(Norm(op), arguments(Norm(op), (3, length), x, others=others))


@pytest.mark.parametrize("op", OPS)
def test_options(op):
    options = [dict(rounding="late"), dict(rounding="early", weight_offset=1.0)]
    options += [dict(weight_offset=1.0), dict(weight_offset=-0.25), dict(eps=0.1), dict(eps=1e-12)]
    options += [dict(dtype=t, rounding=r) for t in DTYPES for r in (None, "late")]
    for length, option, dtype in itertools.product((1, 65, 1024, 4097), options, DTYPES):
        norm = Norm(op, **option)
        check(norm, arguments(norm, (3, length), dtype))
        check(norm, arguments(norm, (3, length), dtype, others={"weight": DTYPES[0]}))


@pytest.mark.parametrize("rounding", [None, "early", "late"])
@pytest.mark.parametrize("op", OPS)
def test_without_weight_or_bias(op, rounding):
    for length, dtype, out in itertools.product((1, 65, 4097), DTYPES, (None, *DTYPES)):
        norm = Norm(op, rounding=rounding, dtype=out)
        for without in (("weight",), ("bias",), ("weight", "bias")):
            check(norm, arguments(norm, (3, length), dtype, without=without))


@pytest.mark.parametrize("op", OPS)
def test_any_number_of_axes(op):
    for shape in [(7,), (1,), (2, 3, 7), (2, 1, 3, 33), (1, 1, 1, 1, 5)]:
        check(Norm(op), arguments(Norm(op), shape, DTYPES[0]))
