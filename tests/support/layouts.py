"""Arrays with the same elements in other memory layouts."""

import mlx.core as mx


def padded_rows(x):
    """Every second row and the middle columns of a larger array of NaN."""
    rows, length = x.shape
    big = mx.full((2 * rows + 3, length + 7), float("nan"), x.dtype)
    big[1 : 2 * rows + 1 : 2, 3 : length + 3] = x
    mx.eval(big)
    return big[1 : 2 * rows + 1 : 2, 3 : length + 3]


def odd_offset(x):
    flat = mx.concatenate([mx.full((1,), float("nan"), x.dtype), x.reshape(-1)])
    mx.eval(flat)
    return flat[1:].reshape(x.shape)


def transposed(x):
    stored = mx.contiguous(x.T)
    mx.eval(stored)
    return stored.T


def every_third(x):
    big = mx.full((x.shape[0], 3 * x.shape[1] + 1), float("nan"), x.dtype)
    big[:, 1::3] = x
    mx.eval(big)
    return big[:, 1::3]


def every_second(x):
    """Every second element of rows that are aligned as vectors require."""
    big = mx.full((x.shape[0], 16 * (-(-x.shape[1] // 8))), float("nan"), x.dtype)
    big[:, : 2 * x.shape[1] : 2] = x
    mx.eval(big)
    return big[:, : 2 * x.shape[1] : 2]


def reversed_rows(x):
    stored = mx.contiguous(x[::-1])
    mx.eval(stored)
    return stored[::-1]


def reversed_elements(x):
    stored = mx.contiguous(x[:, ::-1])
    mx.eval(stored)
    return stored[:, ::-1]


LAYOUTS = (
    *(padded_rows, odd_offset, transposed, every_third, every_second),
    *(reversed_rows, reversed_elements),
)


def strided_parameters(arrays):
    """Weight and bias as columns of arrays of NaN."""
    strided = {}
    for name in arrays.keys() & {"weight", "bias"}:
        a = arrays[name]
        big = mx.full((a.shape[0], 5), float("nan"), a.dtype)
        big[:, 2] = a
        mx.eval(big)
        strided[name] = big[:, 2]
    return strided
