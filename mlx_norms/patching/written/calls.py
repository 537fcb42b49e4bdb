"""The calls of models' layers that are ours instead, and their counts."""

from __future__ import annotations

import functools
import itertools
import types
import weakref
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass

import mlx.core as mx
import mlx.nn

from ... import _ext
from .. import call_sites
from ..scope import Scope, current
from .code import Code, code_of, is_simple
from .recognition import CannotCheck, recognize

_DTYPES = (mx.float32, mx.float16, mx.bfloat16)
_MOST_PLANS = 512  # of one function

_all: weakref.WeakSet[_Norms] = weakref.WeakSet()
_left: dict[str, str] = {}


def replacement(function: types.FunctionType) -> Callable:
    """``function``, the ``__call__`` of a class of layers, or our norm if the scope says so."""
    norms = _Norms(function)
    _all.add(norms)

    @functools.wraps(function)
    def __call__(self, *args, **kwargs):
        scope = current()
        if scope.acts and scope.written:
            y = norms.compute(scope, self, args, kwargs)
            if y is not None:
                return y
        return function(self, *args, **kwargs)

    return __call__


def taken() -> dict[str, int]:
    """The number of calls taken, by op and class."""
    counts: Counter[str] = Counter()
    for plan in itertools.chain.from_iterable(norms.plans() for norms in list(_all)):
        if plan.norm and plan.norm.calls:
            counts[f"{plan.norm.op}: {plan.name}"] += plan.norm.calls
    return dict(sorted(counts.items()))


def left() -> dict[str, str]:
    """Why calls were left to the model's own code, by class."""
    return dict(sorted(_left.copy().items()))


def reset() -> None:
    """Reset the counts."""
    _left.clear()
    for plan in itertools.chain.from_iterable(norms.plans() for norms in list(_all)):
        if plan.norm:
            plan.norm.calls = 0


@dataclass(frozen=True, slots=True)
class _Plan:
    """What becomes of a kind of calls: our norm, or why not."""

    name: str  # of the class
    norm: _ext.WrittenNorm | None = None
    why_not: str = ""
    weight: str | None = None
    bias: str | None = None
    watched: tuple = ()
    is_final: bool = True  # else it may be found out later

    def is_current(self) -> bool:
        return all(get() is value for get, value in self.watched)


class _Norms:
    """The norms that a function computes, by the kind of call.

    A kind is a class, what its code can read of the module, and of the input the dtype, the number
    of axes and the length of the last one; or the whole shape, if the code reads shapes or
    normalizes another axis.
    """

    def __init__(self, function: types.FunctionType):
        self._function = function
        self._codes: dict[type, Code] = {}
        self._plans: dict[tuple, _Plan] = {}
        self._outdated: list[_Plan] = []
        self._by_shape = False

    def plans(self) -> list[_Plan]:
        return [*self._plans.copy().values(), *self._outdated]

    def compute(self, scope: Scope, module: mlx.nn.Module, args, kwargs) -> mx.array | None:
        """Our norm's result, or none if the function has to be called."""
        if len(args) != 1 or kwargs:
            return _leave(module, "it is called with more than x")
        [x] = args
        if type(x) is not mx.array or x.size == 0 or x.ndim == 0 or x.dtype not in _DTYPES:
            return None
        plan = self._plan(module, x)
        if plan is None:
            return _leave(module, "it holds other layers")
        if plan.norm is None:
            _left[plan.name] = plan.why_not
            return None
        weight = None if plan.weight is None else module[plan.weight]
        bias = None if plan.bias is None else module[plan.bias]
        tell = call_sites.recorder() if scope.trace else None
        return plan.norm(scope.fusion, tell, x, weight, bias)

    def _plan(self, module: mlx.nn.Module, x: mx.array) -> _Plan | None:
        cls = type(module)
        try:
            items = tuple([(name, a.dtype, a.shape) for name, a in dict.items(module)])
        except AttributeError:
            items = _with_constants(module)
        if items is None:
            return None
        code = self._codes.get(cls)
        if code is None:
            code = self._codes[cls] = code_of(self._function, cls)
            self._by_shape |= code.depends_on_shape
        shape = x.shape
        key = (
            cls,
            x.dtype,
            shape if self._by_shape else (len(shape), shape[-1]),
            tuple(map(vars(module).get, code.read)),
            items,
        )
        try:
            plan = self._plans.get(key)
        except TypeError:  # an attribute that cannot be hashed
            return self._make(code, module, x)
        if plan is None or not plan.is_current():
            if plan:
                self._outdated += self._plans.values()
                self._plans.clear()  # their keys are of what the code did read
                self._codes.clear()
                return self._plan(module, x)
            elif len(self._plans) >= _MOST_PLANS:
                return _Plan(_name(cls), why_not="it is called in too many ways")
            plan = self._make(code, module, x)
            if plan.is_final:
                self._plans[key] = plan
            if plan.norm and plan.norm.axis != len(shape) - 1:
                self._by_shape = True
        return plan

    def _make(self, code: Code, module: mlx.nn.Module, x: mx.array) -> _Plan:
        name = _name(type(module))
        why_not = code.unknown(module)
        try:
            found = why_not or recognize(self._function, module, x)
        except CannotCheck as error:
            return _Plan(name, why_not=str(error), is_final=False)
        if isinstance(found, str):
            return _Plan(name, why_not=found, watched=code.watched)
        norm, weight, bias = found
        return _Plan(name, norm, "", weight, bias, code.watched)


def _with_constants(module: mlx.nn.Module) -> tuple | None:
    """The arrays and the numbers of a module as a key, or none if there are others."""
    items = []
    for name, value in module.items():
        if type(value) is mx.array:
            items.append((name, value.dtype, value.shape))
        elif isinstance(value, (tuple, list)) and is_simple(tuple(value)):
            items.append((name, tuple(value)))
        else:
            return None
    return tuple(items)


def _leave(module: mlx.nn.Module, why: str) -> None:
    """Notes why a call is left, if the class is named as a norm: else it is none."""
    name = type(module).__name__
    if "norm" in name.lower():
        _left[_name(type(module))] = why


def _name(cls: type) -> str:
    return f"{cls.__module__}.{cls.__qualname__}"
