"""Layers of ``mlx.nn`` that are replaced by their ``__call__``: ``mx.fast`` has no such norm."""

from __future__ import annotations

import functools
from collections.abc import Callable

import mlx.core as mx
import mlx.nn

from .. import nn
from .._ext import Outcome, count_outcome
from ..nn.group_layers import has_array_options
from .scope import STOCK, current, entered
from .transforms import is_compiling_alone

# By the layer: ours, and the methods with which mlx.nn's computes and a subclass may compute
# something else.
_LAYERS = {
    mlx.nn.GroupNorm: (nn.GroupNorm, ("_group_norm", "_pytorch_compatible_group_norm")),
    mlx.nn.InstanceNorm: (nn.InstanceNorm, ()),
    mlx.nn.BatchNorm: (nn.BatchNorm, ("_calc_stats",)),
}
_DTYPES = (mx.float32, mx.float16, mx.bfloat16)


def replacements() -> list[tuple[type, str, Callable]]:
    """As those of ``mx.fast``'s functions: what holds the original, its name, and its maker."""
    return [(layer, "__call__", functools.partial(_call, layer)) for layer in _LAYERS]


def _call(layer: type, original: Callable) -> Callable:
    ours, names = _LAYERS[layer]
    methods = [(name, vars(layer)[name]) for name in names]

    @functools.wraps(original)
    def __call__(self, *args, **kwargs):
        if not current().acts or not _has(self, methods) or _is_part_of_a_kernel(self):
            return original(self, *args, **kwargs)
        try:
            if has_array_options(self):
                raise ValueError  # as what our op does not take
            y = ours.__call__(self, *args, **kwargs)
        except (AttributeError, TypeError):
            return original(self, *args, **kwargs)  # whose error fits the caller's arguments
        except ValueError:
            count_outcome(_why_not(self, *args, **kwargs))
            with entered(STOCK):
                return original(self, *args, **kwargs)
        count_outcome(Outcome.GROUPS)
        return y

    return __call__


def _is_part_of_a_kernel(module: mlx.nn.Module) -> bool:
    """Whether MLX compiles a norm by given statistics into the kernel of what is around it."""
    return (
        isinstance(module, mlx.nn.BatchNorm)
        and not module.training
        and bool(module.track_running_stats)
        and is_compiling_alone()
    )


def _has(module: mlx.nn.Module, methods: list[tuple[str, Callable]]) -> bool:
    return all(getattr(getattr(module, name), "__func__", None) is m for name, m in methods)


def _why_not(module: mlx.nn.Module, *args, **kwargs) -> Outcome:
    values = (*args, *kwargs.values(), *module.values())
    dtypes = {value.dtype for value in values if isinstance(value, mx.array)}
    if has_array_options(module) or dtypes.issubset(_DTYPES):
        return Outcome.ARGUMENTS_NOT_TAKEN
    return Outcome.DTYPE_NOT_TAKEN
