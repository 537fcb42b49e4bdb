"""Calls of a model's layers, by the ``__call__`` of their class."""

from __future__ import annotations

import functools
import types
from collections.abc import Callable

import mlx.core as mx
import mlx.nn

from ..scope import Scope, current
from .code import is_simple
from .plans import Plan, Plans, leave, takes

_ABSENT = object()


def replacement(function: types.FunctionType) -> Callable:
    """``function``, the ``__call__`` of a class of layers, or our norm if the scope says so."""
    layers = _Layers(function)

    @functools.wraps(function)
    def __call__(self, *args, **kwargs):
        scope = current()
        if scope.acts and scope.written:
            y = layers.compute(scope, self, args, kwargs)
            if y is not None:
                return y
        return function(self, *args, **kwargs)

    return __call__


class _Layers(Plans):
    def compute(self, scope: Scope, module: mlx.nn.Module, args, kwargs) -> mx.array | None:
        """Our norm's result, or none if the function has to be called."""
        if len(args) != 1 or kwargs:
            return _leave_norm(module, "it is called with more than x")
        [x] = args
        if not takes(x) or not isinstance(module, mlx.nn.Module):
            return None
        plan = self.plan(module, x)
        if plan is None:
            return _leave_norm(module, "it holds other layers")
        return plan.compute(scope, x, _arrays(module))

    def _plan(self, module: mlx.nn.Module, x: mx.array) -> Plan | None:
        cls = type(module)
        try:
            items = tuple([(name, a.dtype, a.shape) for name, a in dict.items(module)])
        except AttributeError:
            items = _with_constants(module)
        if items is None:
            return None
        code = self.code(cls)
        own = vars(module)
        read = [(type(value), value) for value in [own.get(name, _ABSENT) for name in code.read]]
        kind = (cls, self.kind_of(x), tuple(read), items)
        try:
            plan = self.get(kind)
        except TypeError:  # an attribute that cannot be hashed
            return Plan(_name(cls), why_not=code.unknown(module) or "it has an odd attribute")
        if plan is None:
            names = [name for name, value in module.items() if type(value) is mx.array]
            call = functools.partial(_called, self.function, module, names)
            arrays = [x, *_arrays(module)]
            return self.make(kind, code, code.unknown(module), _name(cls), call, arrays)
        return plan


def _called(function: Callable, module: mlx.nn.Module, names: list[str], arrays: list) -> object:
    """What a module with these arrays computes of the first; the code cannot change the module."""
    x, *parameters = arrays
    twin = dict.__new__(type(module))
    dict.update(twin, {**module, **dict(zip(names, parameters, strict=True))})
    vars(twin).update(vars(module))
    return function(twin, x)


def _arrays(module: mlx.nn.Module) -> list[mx.array]:
    return [value for value in dict.values(module) if type(value) is mx.array]


def _with_constants(module: mlx.nn.Module) -> tuple | None:
    """The arrays and the numbers of a module as a key, or none if there are others."""
    items = []
    for name, value in dict.items(module):
        if type(value) is mx.array:
            items.append((name, value.dtype, value.shape))
        elif isinstance(value, (tuple, list)) and is_simple(tuple(value)):
            items.append((name, type(value), tuple(map(type, value)), tuple(value)))
        else:
            return None
    return tuple(items)


def _leave_norm(module: mlx.nn.Module, why: str) -> None:
    """Notes why a call is left, if the class is named as a norm: else it is none."""
    if "norm" in type(module).__name__.lower():
        leave(_name(type(module)), why)


def _name(cls: type) -> str:
    return f"{cls.__module__}.{cls.__qualname__}"
