"""A row has the same bits however many rows there are.

On CUDA few rows and many are taken in different ways (csrc/norm/plan.cpp): many are more than
16 SIMD-groups a multiprocessor, which an H200 has 132 of.
"""

import mlx.core as mx
import pytest

from support.bits import assert_same_bits
from support.checks import check_outputs
from support.inputs import arguments
from support.norm_case import DTYPES, OPS, Norm

MANY = 4096
SIMDS = {"cuda": 2200}  # more than few
FEW = 7


@pytest.mark.parametrize("length, simds", [(65, 1), (256, 1), (2047, 2), (2048, 2)])
@pytest.mark.parametrize("op", OPS)
def test_rows_of_a_large_batch(op, length, simds, backend):
    norm = Norm(op)
    rows = SIMDS.get(backend, 140) // simds
    for dtype in DTYPES:
        arrays = arguments(norm, (rows, length), dtype)
        got = norm(arrays)
        check_outputs(norm, arrays, got)
        for first in (0, rows // 2, rows - FEW):
            few = {n: a[first : first + FEW] if a.ndim > 1 else a for n, a in arrays.items()}
            for all_rows, alone in zip(got, norm(few), strict=True):
                part = mx.contiguous(all_rows[first : first + FEW])
                assert_same_bits(part, alone, f"{op}, {dtype}, rows from {first} on")


@pytest.mark.parametrize("length, dtype", [(257, mx.float32), (1000, mx.bfloat16)])
@pytest.mark.parametrize("op", ["rms_norm", "layer_norm"])
def test_one_row_two_and_thousands(op, length, dtype, backend):
    """Of rows that one SIMD-group could have, however many there are."""
    norm = Norm(op)
    arrays = arguments(norm, (MANY, length), dtype)
    (got,) = norm(arrays)
    for count in (1, 2):
        for first in (0, MANY - count):
            few = {n: a[first : first + count] if a.ndim > 1 else a for n, a in arrays.items()}
            (alone,) = norm(few)
            part = mx.contiguous(got[first : first + count])
            assert_same_bits(part, alone, f"{count} rows from {first} on")
