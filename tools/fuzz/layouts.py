"""Arrays in memory layouts other than row by row."""

import mlx.core as mx
import numpy as np


def laid_out(rng, values, dtype):
    """Values rounded to a dtype, as a view into a larger array of NaNs.

    Axes are in any order, with steps and odd offsets, some of them reversed. Now and then an axis
    is broadcast, so that its first element is repeated.
    """
    if values.ndim == 0 or rng.random() < 0.4:
        return evaluated(values, dtype)
    order = [int(axis) for axis in rng.permutation(values.ndim)]
    if rng.random() < 0.5:
        order = list(range(values.ndim))
    turned = values.transpose(order)
    stored, index = [], []
    for axis, n in enumerate(turned.shape):
        if rng.random() < 0.1:
            turned = turned.take([0], axis)
            stored.append(1)
            index.append(slice(None))
            continue
        step = int(rng.choice([1, 1, 1, 2, 3, -1, -2]))
        before, after = (int(k) for k in rng.integers(0, 4, 2))
        stored.append(before + abs(step) * n + after)
        first, stop = before, before + abs(step) * n
        if step < 0:
            first, stop = stop - 1, (before - 1 if before else None)
        index.append(slice(first, stop, step))
    whole = np.full(stored, np.nan, np.float32)
    whole[tuple(index)] = turned
    view = evaluated(whole, dtype)[tuple(index)].transpose(
        [order.index(i) for i in range(len(order))]
    )
    return mx.broadcast_to(view, values.shape)


def evaluated(values, dtype):
    a = mx.array(values).astype(dtype)
    mx.eval(a)
    return a
