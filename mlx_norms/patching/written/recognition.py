"""Which norm of this package a call of a model's code computes, if any."""

from __future__ import annotations

from collections.abc import Callable

import mlx.core as mx

from ... import _ext
from ..scope import STOCK, entered

# How far results may lie from ours, relative to the largest: those written in 16 bits throughout
# round at every step.
_TOLERANCE = {mx.float32: 1e-4, mx.float16: 2e-2, mx.bfloat16: 8e-2}
_ROWS = 3


# A call of a model's code on arrays, of which the first is x.
Call = Callable[[list[mx.array]], object]


class CannotCheck(Exception):
    """Nothing could be evaluated."""


def recognize(call: Call, arrays: list[mx.array], any_shape: bool) -> _ext.WrittenNorm | str:
    """The norm that ``call(arrays)`` computes, or why it is none, as the end of a sentence.

    With ``any_shape`` it is that of x with any other axes before the last one, too: MLX leaves out
    a sum over one element, so such axes are read as longer ones.

    The code has been found to compute and do nothing else. It is called on stand-ins that have no
    values. Then it is compared with our norm on a few random rows and parameters, which belong to
    no transform that may be tracing the arrays.

    Raises:
        CannotCheck: If the rows could not be evaluated, here and now.
    """
    if any_shape:
        x, *parameters = arrays
        shape = [_ROWS if n == 1 else n for n in x.shape[:-1]]
        arrays = [mx.zeros([*shape, x.shape[-1]], x.dtype), *parameters]
    x, *parameters = map(_ext.stand_in, arrays)
    try:
        y = _traced(call, [x, *parameters])
    except Exception as error:
        return f"it cannot be called on an array without values ({error})"
    if type(y) is not mx.array:
        return f"it returns a {type(y).__name__}, not an array"
    found = _ext.read_norm(y, x, parameters)
    if isinstance(found, str) or _agrees(found, call, arrays):
        return found
    return f"it differs from {found.op} on random rows"


def _traced(call: Call, arrays: list[mx.array]) -> object:
    """What the call returns in a trace, where functions that are compiled are not one node."""
    results = []

    def trace(argument):
        with entered(STOCK):
            results.append(call(arrays))
        return argument

    mx.compile(trace)(mx.array(0.0))
    return results[0]


def which(norm: _ext.WrittenNorm) -> tuple[int | None, ...]:
    """Which of the parameters are its weight, bias and factor."""
    return norm.weight, norm.bias, norm.factor


def _agrees(norm: _ext.WrittenNorm, call: Call, arrays: list[mx.array]) -> bool:
    axis = norm.axis - arrays[0].ndim  # from the end, as axes of parameters are
    shapes = [a.shape for a in arrays]
    for at in [0] if norm.factor is None else [0, 1 + norm.factor]:
        ndim = len(shapes[at])
        shapes[at] = [n if i - ndim == axis else min(n, _ROWS) for i, n in enumerate(shapes[at])]
    row, *parameters = inputs = [
        _random(seed, shape, a.dtype)
        for seed, (shape, a) in enumerate(zip(shapes, arrays, strict=True))
    ]
    try:
        with entered(STOCK):
            theirs = call(inputs)
    except Exception:
        return False  # of fewer rows it is something else
    if type(theirs) is not mx.array:
        return False
    used = [None if i is None else parameters[i] for i in which(norm)]
    ours = norm.alone(row, *used)
    if ours.dtype != theirs.dtype or ours.shape != theirs.shape:
        return False
    tolerance = max(_TOLERANCE[a.dtype] for a in [row, *used] if a is not None)
    ours, theirs = (y.astype(mx.float32) for y in (ours, theirs))
    try:
        return (mx.abs(ours - theirs).max() <= tolerance * mx.abs(ours).max()).item()
    except Exception as error:
        raise CannotCheck(f"it could not be compared with {norm.op} ({error})") from error


def _random(seed: int, shape: list[int], dtype: mx.Dtype) -> mx.array:
    """Values with a mean other than zero."""
    values = mx.random.normal(shape, key=mx.random.key(seed)) + 0.25
    return values.astype(dtype)
