"""Steps that do more than return arrays: they change, evaluate or drop arrays, or raise."""

import mlx.core as mx
import numpy as np

import mlx_norms

from .draw import NoChoice
from .program import kind


def place_in(draw, target):
    """An index into a value, and another value that fits there."""
    shape = draw.values[target].shape
    how = draw.one_of(["row", "part", "column", "all"])
    if how == "row":
        index, left = (draw.integer(0, shape[0] - 1),), shape[1:]
    elif how == "part":
        first = draw.integer(0, shape[0] - 1)
        stop = draw.integer(first + 1, shape[0])
        index, left = (slice(first, stop),), (stop - first, *shape[1:])
    elif how == "column":
        first = draw.integer(0, shape[-1] - 1)
        index, left = (Ellipsis, slice(first, first + 1)), (*shape[:-1], 1)
    else:
        index, left = (Ellipsis,), shape
    fits = [n for n, a in draw.values.items() if a.shape in (left, left[-1:])]
    return index, [draw.one_of(fits)] if fits and draw.chance(0.7) else []


def changeable(draw):
    return draw.value(lambda a: a.ndim >= 1 and a.size > 0, among=draw.own)


@kind(3, effect=True, writes=True)
class set_item:
    """x[index] = value, or x[index] += value."""

    def choose(draw):
        target = changeable(draw)
        index, value = place_in(draw, target)
        return (target, *value), dict(index=index, adds=draw.chance(0.4))

    def run(context, target, value=2.5, *, index, adds):
        if adds:
            target[index] += value
        else:
            target[index] = value
        return []


@kind(3, effect=True, writes=True)
class update:
    """x += y, and other in-place operators."""

    def choose(draw):
        target = changeable(draw)
        how = draw.one_of(["add", "add", "subtract", "multiply"])
        value = [draw.like(target)] if draw.chance(0.6) else [draw.row_of(target)]
        return (target, *(value if draw.chance(0.8) else [])), dict(how=how)

    def run(context, target, value=0.5, *, how):
        if how == "add":
            target += value
        elif how == "subtract":
            target -= value
        else:
            target *= value
        return []


@kind(1, effect=True)
class alias:
    """Another reference to the same array."""

    def choose(draw):
        return (draw.value(),), {}

    def run(context, a):
        return [a]


@kind(3, effect=True)
class evaluate:
    """Evaluates some values now."""

    def choose(draw):
        values = {draw.value() for _ in range(draw.integer(1, 3))}
        how = draw.one_of(["eval", "async_eval", "async_eval", "item", "numpy"])
        return tuple(sorted(values)), dict(how=how)

    def run(context, *arrays, how):
        if how == "eval":
            mx.eval(*arrays)
        elif how == "async_eval":
            mx.async_eval(*arrays)
        elif how == "item":
            arrays[0].sum().item()
        else:
            np.array(arrays[0].astype(mx.float32))
        return []


@kind(2, effect=True)
class drop:
    """Drops the last reference to a value."""

    def choose(draw):
        return (), dict(value=draw.value(among=draw.own))

    def run(context, value):
        del context.values[value]
        return []


def wrong(length):
    return mx.zeros((length + 1,))


BAD_CALLS = {
    "weight of another length": lambda h: mx.fast.rms_norm(h, wrong(h.shape[-1]), 1e-5),
    "weight of two axes": lambda h: mx.fast.layer_norm(h, mx.zeros((1, h.shape[-1])), None, 1e-5),
    "bias of another length": lambda h: mx.fast.layer_norm(h, None, wrong(h.shape[-1]), 1e-5),
    "no axis": lambda h: mx.fast.rms_norm(mx.array(1.0), None, 1e-5),
    "no eps": lambda h: mx.fast.rms_norm(h, None),
    "an unknown keyword": lambda h: mx.fast.layer_norm(h, None, None, eps=1e-5, axis=0),
    "a weight that is none": lambda h: mx.fast.rms_norm(h, "w", 1e-5),
    "integers": lambda h: mx.fast.rms_norm(h.astype(mx.int32), None, 1e-5),
    "a product": lambda h: h @ mx.zeros((h.shape[-1] + 1, 2)),
    "a call of ours": lambda h: ours_fails(h),
}


def ours_fails(h):
    try:
        mlx_norms.add_rms_norm(h, h[None, None], None)
    except ValueError:
        raise ValueError("of the residual's shape") from None


@kind(2, effect=True)
class bad_call:
    """A call that raises; the pending sum that it looked at is used afterwards."""

    def choose(draw):
        x = draw.rows()
        return (x, draw.like(x)), dict(call=draw.one_of(BAD_CALLS))

    def run(context, x, r, call):
        h = x + r
        try:
            BAD_CALLS[call](h)
        except (ValueError, TypeError, RuntimeError) as error:
            context.raised.append((type(error).__name__, str(error)))
            return [h]
        raise NoChoice
