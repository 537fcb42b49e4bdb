"""What becomes of the calls of functions that may write a norm, and how many were taken."""

from __future__ import annotations

import types
import weakref
from collections import Counter
from dataclasses import dataclass

import mlx.core as mx

from ... import _ext
from .. import call_sites
from ..scope import Scope
from .code import Code, code_of
from .recognition import Call, CannotCheck, recognize, which

_DTYPES = (mx.float32, mx.float16, mx.bfloat16)
_MOST_PLANS = 512  # of one function

_all: weakref.WeakSet[Plans] = weakref.WeakSet()
_left: dict[str, str] = {}


def taken() -> dict[str, int]:
    """The number of calls taken, by op and the name of the class or function."""
    counts: Counter[str] = Counter()
    for plans in list(_all):
        counts += plans.outdated + _counts(plans.all())
    return dict(sorted(counts.items()))


def left() -> dict[str, str]:
    """Why calls were left to the model's own code, by the name of the class or function."""
    return dict(sorted(_left.copy().items()))


def leave(name: str, why: str) -> None:
    """Note why a call is left."""
    _left[name] = why


def reset() -> None:
    """Reset the counts."""
    _left.clear()
    for plans in list(_all):
        plans.outdated.clear()
        for plan in plans.all():
            plan.norm.calls = 0


def takes(x: object) -> bool:
    """Whether our norms take an input."""
    return type(x) is mx.array and x.ndim > 0 and x.size > 0 and x.dtype in _DTYPES


@dataclass(frozen=True, slots=True)
class Plan:
    """What becomes of a kind of calls: our norm, of which of the arrays besides x, or why not."""

    name: str
    norm: _ext.WrittenNorm | None = None
    why_not: str = ""
    which: tuple[int | None, ...] = ()
    watched: tuple = ()
    is_final: bool = True  # else it may be found out later

    def is_current(self) -> bool:
        try:
            return all(get() is value for get, value in self.watched)
        except ValueError:  # a variable that has no value any more
            return False

    def compute(self, scope: Scope, x: mx.array, arrays: list[mx.array]) -> mx.array | None:
        """Our norm's result, or none if the model's own code has to be called."""
        if self.norm is None:
            leave(self.name, self.why_not)
            return None
        parameters = (None if i is None else arrays[i] for i in self.which)
        tell = call_sites.recorder() if scope.trace else None
        return self.norm(scope.fusion, tell, x, *parameters)


class Plans:
    """Those of a function, by the kind of call.

    A kind has the input's dtype, its number of axes and the length of the last one; or its whole
    shape, if the code reads shapes or normalizes another axis; and all else that the code reads.
    """

    def __init__(self, function: types.FunctionType):
        self.function = function
        self._codes: dict[type, Code] = {}
        self._by_kind: dict[tuple, Plan] = {}
        self.outdated: Counter[str] = Counter()  # calls taken by plans that are no more
        self._by_shape = False
        _all.add(self)

    def all(self) -> list[Plan]:
        return [plan for plan in self._by_kind.copy().values() if plan.norm]

    def code(self, cls: type) -> Code:
        """The function's code, as a method of this class."""
        code = self._codes.get(cls)
        if code is None:
            code = self._codes[cls] = code_of(self.function, cls)
            self._by_shape |= code.depends_on_shape
        return code

    def kind_of(self, x: mx.array) -> tuple:
        shape = x.shape
        return (x.dtype, shape) if self._by_shape else (x.dtype, len(shape), shape[-1])

    def get(self, kind: tuple) -> Plan | None:
        return self._by_kind.get(kind)

    def plan(self, *call) -> Plan | None:
        """That of a call, as ``_plan`` finds it for what the code reads now."""
        plan = self._plan(*call)
        if plan is None or plan.is_current():
            return plan
        self.forget()
        return self._plan(*call)

    def forget(self) -> None:
        """Of a function that reads other values now, as kinds are by what it did read."""
        self.outdated += _counts(self.all())
        self._by_kind.clear()
        self._codes.clear()

    def make(
        self, kind: tuple, code: Code, why_not: str | None, name: str, call: Call, arrays: list
    ) -> Plan:
        """The plan of ``call(arrays)``, of which the first is x."""
        if len(self._by_kind) >= _MOST_PLANS:
            return Plan(name, why_not="it is called in too many ways")
        try:
            found = why_not or recognize(call, arrays, any_shape=not self._by_shape)
        except CannotCheck as error:
            return Plan(name, why_not=str(error), is_final=False)
        if isinstance(found, str):
            plan = Plan(name, why_not=found, watched=code.watched)
        else:
            plan = Plan(name, found, which=which(found), watched=code.watched)
            self._by_shape |= found.axis != arrays[0].ndim - 1
        self._by_kind[kind] = plan
        return plan


def _counts(plans: list[Plan]) -> Counter[str]:
    counts: Counter[str] = Counter()
    for plan in plans:
        counts[f"{plan.norm.op}: {plan.name}"] += plan.norm.calls
    return counts
