"""Rows that share a SIMD-group on a GPU: of every length, and whatever those beside them hold."""

import itertools

import mlx.core as mx
import numpy as np
import pytest

import mlx_norms
from support import inputs
from support.bits import assert_same_bits
from support.checks import check_gradients, check_outputs, check_with_gradients, rows_of
from support.inputs import arguments, cotangents, normal
from support.layouts import odd_offset
from support.norm_case import DTYPES, OPS, Norm

pytestmark = pytest.mark.usefixtures("backend")

# A SIMD-group has up to 32 of them.
ROWS = (1, 2, 3, 5, 33)
LENGTHS = range(1, 301)
# For as many lanes of a row as there are, whole vectors or not.
SOME_LENGTHS = (1, 3, 4, 6, 8, 9, 12, 16, 20, 23, 30, 32, 33, 48, 64, 65, 96, 100, 128)


def cases(op):
    """Each length with a number of rows and a dtype, which another op may have at another.

    A simulator takes every other length: of each statistic, the op with a residual the others.
    """
    shift = sum(op.encode())
    first = op.startswith("add") != ("rms" in op)
    for length in LENGTHS[first::2] if inputs.SLOW else LENGTHS:
        yield length, ROWS[length % len(ROWS)], DTYPES[(length + shift) % len(DTYPES)]


@pytest.mark.parametrize("op", OPS)
def test_every_length(op):
    norm = Norm(op)
    for length, rows, dtype in cases(op):
        check_with_gradients(norm, arguments(norm, (rows, length), dtype))


def heads(shape, dtype, seed):
    """Rows of as many heads, and a weight for each."""
    return {"x": normal(shape, dtype, seed=seed), "weight": normal(shape[1:], dtype, seed=-seed)}


def test_every_length_of_heads():
    norm = Norm("rms_norm")
    for length, rows, dtype in cases(norm.op):
        check_with_gradients(norm, heads((rows, 2, length), dtype, 1))


def test_every_length_of_queries_and_keys():
    norm = Norm("rms_norm")

    def of_two(q, k, *weights):
        return mlx_norms.rms_norms([q, k], weights, norm.eps)

    for length, rows, dtype in cases("rms_norms"):
        q, k = heads((rows, 3, length), dtype, 1), heads((rows + 1, 1, length), dtype, 2)
        cots = [normal(a["x"].shape, dtype, seed=3) for a in (q, k)]
        given = [q["x"], k["x"], q["weight"], k["weight"]]
        outputs, gradients = mx.vjp(of_two, given, cots)
        for i, arrays in enumerate((q, k)):
            check_outputs(norm, arrays, outputs[i : i + 1], "of two")
            check_gradients(norm, arrays, cots[i : i + 1], gradients[i::2], "of two")


@pytest.mark.parametrize("length", [2884, 2886, 4097, 5001, 8195, 16402])
@pytest.mark.parametrize("op", OPS)
def test_long_rows_of_odd_vectors(op, length):
    """Of fewer elements than a vector has, or none, past the last whole one."""
    norm = Norm(op)
    for rows, dtype in itertools.product((1, 3), DTYPES):
        check_with_gradients(norm, arguments(norm, (rows, length), dtype))


# What the rows beside it are full of: one value is its own mean, which may be rounded.
@pytest.mark.parametrize("value", [1e4, 3333.3, float("nan"), float("inf"), float("-inf")])
@pytest.mark.parametrize("op", OPS)
def test_a_row_is_the_same_beside_any_other(op, value):
    norm = Norm(op)
    for length, dtype in itertools.product(SOME_LENGTHS, DTYPES):
        arrays = arguments(norm, (35, length), dtype)
        for i, name in enumerate(norm.arguments[: 1 + norm.adds]):
            arrays[name][1::2] = 0.0 if i else value
        cots = cotangents(norm, arrays)
        all_rows = rows_of(norm, arrays, cots, slice(None))
        for row in (0, 2, 18, 34, *((1, 33) if np.isfinite(value) else ())):
            one = slice(row, row + 1)
            for got, expected in zip(rows_of(norm, arrays, cots, one), all_rows, strict=True):
                assert_same_bits(got, expected[one], f"{op} of {length}, {dtype}, row {row}")


@pytest.mark.parametrize("copy", [lambda a: a + 0, odd_offset], ids=["copy", "odd offset"])
@pytest.mark.parametrize("op", OPS)
def test_in_the_memory_of_dead_inputs(op, copy):
    """Lanes without a row neither read nor write another's, and outputs lie where inputs did."""
    norm = Norm(op)
    names = norm.arguments[: 1 + norm.adds]
    for length, rows, dtype in itertools.product(SOME_LENGTHS, ROWS, (mx.float32, mx.float16)):
        arrays = arguments(norm, (rows, length), dtype)
        cots = cotangents(norm, arrays)
        held = [*norm(arrays), *norm.vjp(arrays, cots)[1]]
        mx.eval(held)
        moved = [{n: copy(a) if n in names else a for n, a in arrays.items()} for _ in range(2)]
        moved_cots = [copy(c) for c in cots]
        mx.eval(moved, moved_cots)
        dead = [*norm(moved[0]), *norm.vjp(moved[1], moved_cots)[1]]
        del moved, moved_cots  # held by the graph alone
        for got, expected in zip(dead, held, strict=True):
            assert_same_bits(got, expected, f"{op} of {rows} rows of {length}, {dtype}")
