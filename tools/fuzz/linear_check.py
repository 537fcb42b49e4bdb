"""Compares a norm with its projections, row by row, with the oracle."""

import mlx.core as mx
import numpy as np

from support import oracle
from support.linear_case import Quantized, matrix, most_rows, truths

from .norm_check import LARGEST, Rows, check_rows, failure


def check(case, backend):
    """Failures as sentences; None if MLX cannot compute the matmuls."""
    got = evaluated(case, case.two_steps)
    if got is None:
        return None
    norm, arrays = case.norm, case.norm_arrays
    x = arrays["x"]
    zero = mx.zeros(x.shape, norm.out_dtype(arrays))
    fit = Rows(norm, arrays, [zero]).fit & products_fit(case)
    failures = []
    one = one_launch(case, backend)
    expected = truths(case, one)
    projected = len(expected) - case.adds
    for truth, a in zip(expected[:projected], got[:projected], strict=True):
        if not one:  # MLX's matmul, which adds up one term after the other
            truth.slack = truth.slack * (1 + x.shape[-1] ** 0.5 / 8)
        failures += check_rows(truth, a, fit, None)
    for truth, a in zip(expected[projected:], got[projected:], strict=True):
        failures += failure(truth, a)
    return failures + backend.faults()


def evaluated(ours, stock):
    """What ours computes; none if MLX's own products, compiled at first use on CUDA, raise."""
    try:
        got = ours()
        mx.eval(got)
        return got
    except RuntimeError:
        if raises(stock):
            return None
        raise


def raises(stock):
    try:
        mx.eval(stock())
    except RuntimeError:
        return True
    return False


def one_launch(case, backend):
    """Whether the call is certainly one launch, in which the normalized row is not rounded."""
    rows = case.arrays["x"].size // case.arrays["x"].shape[-1]
    kinds = {(w.bits, w.group_size) if isinstance(w, Quantized) else None for w in case.weights}
    dtypes = {a.dtype for a in case.flat() if a.dtype != mx.uint32}
    alike = len(kinds) == len(dtypes) == 1
    return backend.name != "cpu" and alike and rows <= most_rows(next(iter(kinds)))


def products_fit(case):
    """The rows whose normalized values and matmul sums fit into the dtypes that hold them."""
    normalized = oracle.forward(case.norm, case.norm_arrays)[0]
    largest = min(oracle.FORMATS[normalized.dtype][2] / 4, LARGEST)
    size = np.abs(normalized.value)
    fit = size.max(-1) <= largest
    for weight in case.weights:
        sums = size @ matrix(weight)[1].T
        fit &= sums.max(-1) <= largest
        if case.gated:
            fit &= sums.max(-1) ** 2 <= largest
    return fit
