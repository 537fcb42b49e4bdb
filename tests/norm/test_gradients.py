"""Values, and gradients of every argument, against the float64 oracle."""

import itertools
from functools import partial

import mlx.core as mx
import pytest

from support import oracle
from support.bits import assert_same_bits
from support.checks import check, check_gradients, check_outputs, check_with_gradients
from support.inputs import (
    LENGTHS,
    MANY_ROWS,
    arguments,
    cotangents,
    dtype_pairs,
    mixed_dtypes,
    rows_and_dtypes,
    rows_for,
    unless_slow,
)
from support.norm_case import DTYPES, OPS, Norm

MOST = (mx.float32, *unless_slow(mx.float16, mx.bfloat16))

pytestmark = pytest.mark.usefixtures("backend")


@pytest.mark.parametrize("length", LENGTHS)
@pytest.mark.parametrize("op", OPS)
def test_one_dtype(op, length):
    for rows, dtype in rows_and_dtypes(length):
        check_with_gradients(Norm(op), arguments(Norm(op), (rows, length), dtype))


@pytest.mark.parametrize("length", LENGTHS)
@pytest.mark.parametrize("op", OPS)
def test_weight_of_another_dtype(op, length):
    norm = Norm(op)
    pairs = dtype_pairs(length)
    for n, (i, (x, weight)) in itertools.product(rows_for(length, 1025), enumerate(pairs)):
        if n < MANY_ROWS or length <= 129 or i == LENGTHS.index(length) % len(pairs):
            others = mixed_dtypes(norm, x, weight)
            check_with_gradients(norm, arguments(norm, (n, length), x, others=others))


@pytest.mark.parametrize("op", ["add_rms_norm", "add_layer_norm"])
def test_residual_of_another_dtype(op):
    for length, (x, r) in itertools.product((1, 33, 1025), itertools.permutations(DTYPES, 2)):
        for weight in DTYPES:
            others = {"residual": r, "weight": weight}
            check_with_gradients(Norm(op), arguments(Norm(op), (3, length), x, others=others))


@pytest.mark.parametrize("op", OPS)
def test_options(op):
    options = [dict(rounding="late"), dict(rounding="early", weight_offset=1.0)]
    options += [dict(weight_offset=1.0), dict(weight_offset=-0.25), dict(eps=0.1), dict(eps=1e-12)]
    options += [dict(dtype=t, rounding=r) for t in DTYPES for r in (None, "late")]
    for length, option, dtype in itertools.product((1, 65, 1024, 4097), options, DTYPES):
        norm = Norm(op, **option)
        check_with_gradients(norm, arguments(norm, (3, length), dtype))
        check(norm, arguments(norm, (3, length), dtype, others={"weight": DTYPES[0]}))


@pytest.mark.parametrize("rounding", [None, "early", "late"])
@pytest.mark.parametrize("op", OPS)
def test_without_weight_or_bias(op, rounding):
    for length, dtype, out in itertools.product((1, 65, 4097), DTYPES, (None, *DTYPES)):
        norm = Norm(op, rounding=rounding, dtype=out)
        for without in (("weight",), ("bias",), ("weight", "bias")):
            check_with_gradients(norm, arguments(norm, (3, length), dtype, without=without))


@pytest.mark.parametrize("op", OPS)
def test_any_number_of_axes(op):
    for shape in [(7,), (1,), (2, 3, 7), (2, 1, 3, 33), (1, 1, 1, 1, 5)]:
        check_with_gradients(Norm(op), arguments(Norm(op), shape, DTYPES[0]))


@pytest.mark.parametrize("rows", [1, 15, 16, 17, 129, 1000])
@pytest.mark.parametrize("op", OPS)
def test_rows_of_persistent_loops(op, rows):
    """As many rows as one loop takes, and one more or less; the last loop's are fewer."""
    norm = Norm(op)
    for length, dtype in itertools.product((33, 128, 1000, 1024), DTYPES):
        if rows * length <= 129 * 1024 or unless_slow(True):
            check_with_gradients(norm, arguments(norm, (rows, length), dtype))


@pytest.mark.parametrize("op", OPS)
def test_many_like_rows(op):
    """Sums over rows whose terms are alike, so that the roundings of a plain sum add up."""
    norm = Norm(op)
    for dtype, rows in (*itertools.product(DTYPES, (4099,)), *itertools.product(MOST, (65536,))):
        some = arguments(norm, (1, 9), dtype)
        shape = (rows, 9)
        arrays = {n: mx.broadcast_to(a, shape) if a.ndim == 2 else a for n, a in some.items()}
        cots = [mx.broadcast_to(c, shape) for c in cotangents(norm, some)]
        check_with_gradients(norm, arrays, cots)


@pytest.mark.parametrize("op", OPS)
def test_long_rows_with_a_tail(op):
    """Past what a GPU kernel keeps in registers, and in memory that its gradient may take."""
    norm = Norm(op)
    for dtype in DTYPES:
        arrays = arguments(norm, (3, 16401), dtype)
        check_with_gradients(norm, arrays)
        held = cotangents(norm, arrays)
        plain = norm.vjp(arrays, held)[1]
        mx.eval(plain)
        names = norm.arguments[: 1 + norm.adds]
        moved = {n: a + 0 if n in names else a for n, a in arrays.items()}
        cots = [c + 0 for c in held]
        gradients = norm.vjp(moved, cots)[1]
        del moved, cots  # held by the graph alone
        for got, expected in zip(gradients, plain, strict=True):
            assert_same_bits(got, expected, f"{op} {dtype}")


@pytest.mark.parametrize("op", OPS)
def test_infinite_cotangent(op):
    """A sum over rows that is infinite stays so, and does not become NaN in the rows after."""
    norm = Norm(op)
    for dtype, bad in itertools.product(DTYPES, (float("inf"), float("-inf"))):
        arrays = arguments(norm, (7, 33), dtype)
        cots = cotangents(norm, arrays)
        _, clean = norm.vjp(arrays, cots)
        cots[0][2, 5] = bad
        _, gradients = norm.vjp(arrays, cots)
        n = oracle.statistics(norm, oracle.rounded_sum(norm, arrays))[0][2, 5]
        expected = {"weight": bad if n > 0 else -bad, "bias": bad}
        for name, got, before in zip(arrays, gradients, clean, strict=True):
            note = f"{op}, {dtype}, {bad}, {name}"
            if name in expected:
                assert got[5].item() == expected[name], note
                assert_same_bits(got[:5], before[:5], note)
                assert_same_bits(got[6:], before[6:], note)
            else:
                assert mx.all(mx.isnan(got[2]) | mx.isinf(got[2])), note
                assert_same_bits(got[3:], before[3:], note)


@pytest.mark.parametrize("used", ["norm", "sum", "both", "neither"])
@pytest.mark.parametrize("op", ["add_rms_norm", "add_layer_norm"])
def test_outputs_that_a_loss_uses(op, used):
    norm = Norm(op)
    for dtype in DTYPES:
        arrays = arguments(norm, (5, 65), dtype)
        given = zip(("norm", "sum"), cotangents(norm, arrays), strict=True)
        cots = [c if used in (output, "both") else None for output, c in given]
        argnums = list(range(len(arrays)))
        gradients = mx.grad(partial(loss, norm, cots), argnums=argnums)(*arrays.values())
        check_gradients(norm, arrays, cots, gradients, f"with {used} used")


def loss(norm, cots, *args):
    """A number whose gradient gives the outputs these cotangents, or leaves them unused."""
    total = args[0].astype(mx.float32).sum() * 0
    for output, c in zip(norm.function(norm.arguments)(*args), cots, strict=True):
        if c is not None:
            total += (output.astype(mx.float32) * c.astype(mx.float32)).sum()
    return total


@pytest.mark.parametrize("op", ["add_rms_norm", "add_layer_norm"])
def test_x_and_residual_are_one_array(op):
    norm = Norm(op)

    def of_one(x, *rest):
        return norm.function(norm.arguments)(x, x, *rest)

    for dtype in DTYPES:
        arrays = arguments(norm, (5, 65), dtype)
        arrays["residual"] = arrays["x"]
        cots = cotangents(norm, arrays)
        rest = [arrays[n] for n in norm.arguments[2:]]
        outputs, gradients = mx.vjp(of_one, [arrays["x"], *rest], cots)
        check_outputs(norm, arrays, outputs)
        truths = oracle.gradients(norm, arrays, *cots)
        # Two equal gradients are added, which doubles without rounding.
        truths["x"].value, truths["x"].slack = 2 * truths["x"].value, 2 * truths["x"].slack
        truths["x"].check(gradients[0], "twice")
        for name, gradient in zip(norm.arguments[2:], gradients[1:], strict=True):
            truths[name].check(gradient)
