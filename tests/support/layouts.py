"""Arrays with the same elements in other memory layouts."""

import mlx.core as mx


def part_of(shape, part, x):
    """x as a part of an array of NaN."""
    big = mx.full(shape, float("nan"), x.dtype)
    big[part] = x
    mx.eval(big)
    return big[part]


def padded_rows(x):
    """Every second row and the middle columns of a larger array of NaN."""
    *axes, length = x.shape
    columns = slice(3, length + 3)
    if not axes:
        return part_of((length + 7,), columns, x)
    rows, *axes = axes
    shape, second = (2 * rows + 3, *axes, length + 7), slice(1, 2 * rows + 1, 2)
    return part_of(shape, (second, ..., columns), x)


def odd_offset(x):
    flat = mx.concatenate([mx.full((1,), float("nan"), x.dtype), x.reshape(-1)])
    mx.eval(flat)
    return flat[1:].reshape(x.shape)


def transposed(x):
    stored = mx.contiguous(x.T)
    mx.eval(stored)
    return stored.T


def every_third(x):
    *axes, length = x.shape
    return part_of((*axes, 3 * length + 1), (..., slice(1, None, 3)), x)


def every_second(x):
    """Every second element of rows that are aligned as vectors require."""
    *axes, length = x.shape
    return part_of((*axes, 16 * -(-length // 8)), (..., slice(0, 2 * length, 2)), x)


def reversed_rows(x):
    stored = mx.contiguous(x[::-1])
    mx.eval(stored)
    return stored[::-1]


def reversed_elements(x):
    stored = mx.contiguous(x[..., ::-1])
    mx.eval(stored)
    return stored[..., ::-1]


LAYOUTS = (
    *(padded_rows, odd_offset, transposed, every_third, every_second),
    *(reversed_rows, reversed_elements),
)


def strided_parameters(arrays):
    """Weight and bias as columns of arrays of NaN."""
    given = {name: arrays[name] for name in arrays.keys() & {"weight", "bias"}}
    return {n: part_of((a.shape[0], 5), (slice(None), 2), a) for n, a in given.items()}
