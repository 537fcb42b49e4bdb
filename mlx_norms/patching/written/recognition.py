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


class CannotCheck(Exception):
    """Nothing could be evaluated."""


def recognize(
    function: Callable, module: mlx.nn.Module, x: mx.array
) -> tuple[_ext.WrittenNorm, str | None, str | None] | str:
    """The norm that ``function(module, x)`` computes, and the names of its weight and bias.

    Or why it is none, as the end of a sentence. The function's code has been found to compute and
    do nothing else, and all of the module's items are arrays and constants. It is called on
    stand-ins that have no values. Then it is compared with our norm on a few random rows and
    parameters, which belong to no transform that may be tracing x.

    Raises:
        CannotCheck: If the rows could not be evaluated, here and now.
    """
    names = [name for name, value in module.items() if type(value) is mx.array]
    stand_ins = [_ext.stand_in(a) for a in (x, *map(module.get, names))]
    try:
        y = _called(function, module, names, stand_ins)
    except Exception as error:
        return f"it cannot be called on an array without values ({error})"
    if type(y) is not mx.array:
        return f"it returns a {type(y).__name__}, not an array"
    found = _ext.read_norm(y, stand_ins[0], stand_ins[1:])
    if isinstance(found, str):
        return found
    if _agrees(found, function, module, names, x):
        return found, *(None if i is None else names[i] for i in (found.weight, found.bias))
    return f"it differs from {found.op} on random rows"


def _agrees(
    norm: _ext.WrittenNorm,
    function: Callable,
    module: mlx.nn.Module,
    names: list[str],
    x: mx.array,
) -> bool:
    shape = [n if i == norm.axis else min(n, _ROWS) for i, n in enumerate(x.shape)]
    like = [(shape, x.dtype), *((module[name].shape, module[name].dtype) for name in names)]
    inputs = [_random(seed, *each) for seed, each in enumerate(like)]
    try:
        theirs = _called(function, module, names, inputs)
    except Exception:
        return False  # of fewer rows it is something else
    row, *parameters = inputs
    weight, bias = (None if i is None else parameters[i] for i in (norm.weight, norm.bias))
    ours = norm.alone(row, weight, bias)
    if ours.dtype != theirs.dtype or ours.shape != theirs.shape:
        return False
    tolerance = max(_TOLERANCE[each.dtype] for each in inputs)
    ours, theirs = (y.astype(mx.float32) for y in (ours, theirs))
    try:
        return (mx.abs(ours - theirs).max() <= tolerance * mx.abs(ours).max()).item()
    except Exception as error:
        raise CannotCheck(f"it could not be compared with {norm.op} ({error})") from error


def _called(
    function: Callable, module: mlx.nn.Module, names: list[str], arrays: list[mx.array]
) -> object:
    """What a module with these arrays computes of the first; the code cannot change the module."""
    x, *parameters = arrays
    twin = dict.__new__(type(module))
    dict.update(twin, {**module, **dict(zip(names, parameters, strict=True))})
    vars(twin).update(vars(module))
    with entered(STOCK):
        return function(twin, x)


def _random(seed: int, shape: list[int], dtype: mx.Dtype) -> mx.array:
    """Arrays with a mean, whose rows differ in scale."""
    values = mx.random.normal(shape, key=mx.random.key(seed)) + 0.25
    return values.astype(dtype)
