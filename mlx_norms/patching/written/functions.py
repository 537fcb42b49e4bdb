"""Calls of functions of a model's modules that are named as norms."""

from __future__ import annotations

import functools
import types
from collections.abc import Callable

import mlx.core as mx

from ..scope import Scope, current
from .code import is_simple
from .plans import Plan, Plans, takes


def replacement(function: types.FunctionType, is_method: bool = False) -> Callable:
    """``function``, or our norm if the scope says so; a method is one that ignores ``self``."""
    calls = _Functions(function, int(is_method))

    @functools.wraps(function)
    def replaced(*args, **kwargs):
        scope = current()
        if scope.acts and scope.written:
            y = calls.compute(scope, args, kwargs)
            if y is not None:
                return y
        return function(*args, **kwargs)

    return replaced


class _Functions(Plans):
    def __init__(self, function: types.FunctionType, ignored: int):
        """Of a function that ignores so many of its first arguments."""
        super().__init__(function)
        self.ignored = ignored

    def compute(self, scope: Scope, args: tuple, kwargs: dict) -> mx.array | None:
        """Our norm's result, or none if the function has to be called."""
        values = (*args[self.ignored :], *kwargs.values())
        arrays = [value for value in values if type(value) is mx.array]
        if len(args) < self.ignored or not arrays or not takes(arrays[0]):
            return None
        plan = self.plan(values, arrays, kwargs)
        return plan.compute(scope, arrays[0], arrays[1:])

    def _plan(self, values: tuple, arrays: list[mx.array], kwargs: dict) -> Plan:
        name = f"{self.function.__module__}.{self.function.__qualname__}"
        x, *parameters = arrays
        given = [(value.dtype, value.shape) for value in parameters]
        for value in values:
            if type(value) is mx.array:
                given.append(mx.array)
            elif is_simple(value):
                given.append((type(value), value))
            else:
                return Plan(name, why_not=f"it is called with a {type(value).__name__}")
        kind = (self.kind_of(x), tuple(kwargs), tuple(given))
        plan = self.get(kind)
        if plan is None:
            code = self.code(object)
            kind = (self.kind_of(x), *kind[1:])  # as the code has been read
            function = functools.partial(self.function, *[None] * self.ignored)
            call = functools.partial(_called, function, values, kwargs)
            return self.make(kind, code, code.unknown(None), name, call, arrays)
        return plan


def _called(function: Callable, values: tuple, kwargs: dict, arrays: list) -> object:
    """What the function returns with these arrays in place of those it was given."""
    left = iter(arrays)
    new = [next(left) if type(value) is mx.array else value for value in values]
    positional = len(values) - len(kwargs)
    return function(*new[:positional], **dict(zip(kwargs, new[positional:], strict=True)))
