"""The pass over the graph of what a function returns, in MLX's transforms while they are patched.

A transform is given a function that ends with the pass: so the graph has the norms of this package
before MLX differentiates or compiles it.
"""

from __future__ import annotations

import enum
import functools
import threading
from collections.abc import Callable, Sequence

from .. import _ext
from . import trees
from .scope import current, entered


class Kind(enum.Enum):
    """A transform, by what it does with its function's graph."""

    COMPILED = enum.auto()
    DERIVED = enum.auto()  # grad, value_and_grad, vjp
    KEPT = enum.auto()  # jvp and vmap: no pass is made
    CHECKPOINTED = enum.auto()  # part of the graph around; there is no trace


_thread = threading.local()  # the kinds of the traces around


def is_compiling_alone() -> bool:
    """Whether a function is traced that ``mx.compile`` was given, and no transform besides."""
    return {*_around()} == {Kind.COMPILED}


def _around() -> tuple[Kind, ...]:
    return getattr(_thread, "around", ())


def over(results: object, boundary: object) -> object:
    """``results`` with new arrays where the pass changes their graph, above ``boundary``."""
    changed = _ext.fuse_graph(results, boundary)
    return trees.exchange(results, changed) if changed else results


def at_end_of_call(results: object, given: object) -> object:
    """The results of a patched model's call, after a pass over them and what it was given."""
    around = _around()
    if not around:
        _ext.fuse_at_eval(trees.arrays((results, given)), True, False)
        return results
    *outer, innermost = around
    return over(results, given) if _may_pass(outer, innermost) else results


def transforming(original: Callable, kind: Kind = Kind.DERIVED) -> Callable:
    """A transform that is given a function first."""

    @functools.wraps(original)
    def transform(*args, **kwargs):
        fun, *others = args or [kwargs.pop("fun", None)]
        return original(_with_pass(fun, kind), *others, **kwargs)

    return transform


def checkpointing(original: Callable) -> Callable:
    """``mx.checkpoint``, whose function has the scope of its call when it is computed again."""

    @functools.wraps(original)
    def checkpoint(fun):
        if not callable(fun):
            return original(fun)
        passed = _with_pass(fun, Kind.CHECKPOINTED)

        @functools.wraps(fun)
        def call(*args, **kwargs):
            scope = current()

            def in_scope(*args, **kwargs):
                with entered(scope):
                    return passed(*args, **kwargs)

            return original(in_scope)(*args, **kwargs)

        return call

    return checkpoint


def compiling(original: Callable) -> Callable:
    """``mx.compile``, whose ``outputs`` are of the same graph."""

    @functools.wraps(original)
    def compile(fun, inputs=None, outputs=None, shapeless=False):
        fun = _with_pass(fun, Kind.COMPILED, outputs)
        return original(fun, inputs=inputs, outputs=outputs, shapeless=shapeless)

    return compile


def _with_pass(fun: Callable, kind: Kind, outputs: object = None) -> Callable:
    if not callable(fun):
        return fun  # MLX says so

    @functools.wraps(fun)
    def passed(*args, **kwargs):
        around = _around()
        _thread.around = around if kind is Kind.CHECKPOINTED else (*around, kind)
        try:
            results = fun(*args, **kwargs)
        finally:
            _thread.around = around
        if not current().fuse or not _may_pass(around, kind):
            return results
        return over((results, outputs), (args, kwargs))[0]

    return passed


def _may_pass(around: Sequence[Kind], kind: Kind) -> bool:
    """Whether a pass may end a function that is traced for this transform, within others.

    Within another derivative the arrays of the outer function are tracers, too, and what is
    compiled in a trace is part of its graph: those stay as they are, until the outer function's
    pass.
    """
    if kind is Kind.COMPILED:
        return not around
    return kind is Kind.CHECKPOINTED or (
        kind is Kind.DERIVED and not {Kind.DERIVED, Kind.KEPT} & {*around}
    )
