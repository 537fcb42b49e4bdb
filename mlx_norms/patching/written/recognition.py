"""Which norm of this package a layer's call computes, if any."""

from __future__ import annotations

from collections.abc import Callable

import mlx.core as mx
import mlx.nn

from ... import _ext
from ..scope import STOCK, entered

# How far results may lie from ours, relative to the largest: those written in 16 bits throughout
# round at every step.
_TOLERANCE = {mx.float32: 1e-4, mx.float16: 2e-2, mx.bfloat16: 8e-2}
_ROWS = 3


def recognize(function: Callable, module: mlx.nn.Module, x: mx.array) -> _ext.WrittenNorm | str:
    """The norm that ``function(module, x)`` computes, or why it is none, as the end of a sentence.

    The function's code has been found to compute and do nothing else, and all of the module's items
    are arrays. It is called on stand-ins that have no values. Then it is compared with our norm on
    a few random rows and parameters, which belong to no transform that may be tracing x.
    """
    inputs = [x, *module.values()]
    stand_ins = list(map(_ext.stand_in, inputs))
    try:
        with entered(STOCK):
            y = function(_twin(module, stand_ins[1:]), stand_ins[0])
    except Exception as error:
        return f"it cannot be called on an array without values ({error})"
    if type(y) is not mx.array:
        return f"it returns a {type(y).__name__}, not an array"
    found = _ext.read_norm(y, stand_ins[0], stand_ins[1:])
    if isinstance(found, str) or _agrees(found, function, module, x):
        return found
    return f"it differs from {found.op} on random rows"


def _agrees(norm: _ext.WrittenNorm, function: Callable, module: mlx.nn.Module, x: mx.array) -> bool:
    shape = [n if i == norm.axis else min(n, _ROWS) for i, n in enumerate(x.shape)]
    row = _random(0, shape, x.dtype)
    parameters = [_random(i + 1, p.shape, p.dtype) for i, p in enumerate(module.values())]
    with entered(STOCK):
        theirs = function(_twin(module, parameters), row)
    weight, bias = (None if i is None else parameters[i] for i in (norm.weight, norm.bias))
    ours = norm.alone(row, weight, bias)
    if ours.dtype != theirs.dtype or ours.shape != theirs.shape:
        return False
    ours, theirs = (y.astype(mx.float32) for y in (ours, theirs))
    tolerance = max(_TOLERANCE[p.dtype] for p in (row, *parameters))
    return (mx.abs(ours - theirs).max() <= tolerance * mx.abs(ours).max()).item()


def _random(seed: int, shape: list[int], dtype: mx.Dtype) -> mx.array:
    """Arrays with a mean, whose rows differ in scale."""
    values = mx.random.normal(shape, key=mx.random.key(seed)) + 0.25
    return values.astype(dtype)


def _twin(module: mlx.nn.Module, arrays: list[mx.array]) -> mlx.nn.Module:
    """A module of the same class with these arrays, so that the code cannot change the module."""
    twin = dict.__new__(type(module))
    dict.update(twin, zip(module, arrays, strict=True))
    vars(twin).update(vars(module))
    return twin
