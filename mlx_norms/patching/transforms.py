"""The pass over the graph of what a function returns, in MLX's transforms while they are patched.

A transform is given a function that ends with the pass: so the graph has the norms of this package
before MLX differentiates or compiles it.
"""

from __future__ import annotations

import enum
import functools
import threading
from collections.abc import Callable

from .. import _ext
from .._ext import Fusion
from . import trees
from .scope import current


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


def over(results: object, boundary: object, written: bool) -> object:
    """``results`` with new arrays where the pass changes their graph, above ``boundary``."""
    changed = _ext.fuse_graph(results, boundary, written)
    return trees.exchange(results, changed) if changed else results


def transforming(original: Callable, kind: Kind = Kind.DERIVED) -> Callable:
    """A transform that is given a function first."""

    @functools.wraps(original)
    def transform(*args, **kwargs):
        fun, *others = args or [kwargs.pop("fun", None)]
        return original(_with_pass(fun, kind), *others, **kwargs)

    return transform


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
        scope, around = current(), _around()
        # What is compiled in a trace is part of its graph.
        is_seen_later = kind is Kind.COMPILED and around
        if not scope.acts or scope.fusion is Fusion.NEVER or is_seen_later:
            return fun(*args, **kwargs)
        _thread.around = around if kind is Kind.CHECKPOINTED else (*around, kind)
        try:
            results = fun(*args, **kwargs)
        finally:
            _thread.around = around
        # Within another derivative the arrays of the outer function are tracers, too: those stay as
        # they are, until the outer function's pass.
        is_inner = kind is Kind.DERIVED and {Kind.DERIVED, Kind.KEPT} & {*around}
        if kind is Kind.KEPT or is_inner:
            return results
        written = scope.written or scope.fusion is Fusion.BY_GRAPH_PASS
        return over((results, outputs), (args, kwargs), written)[0]

    return passed


# Of every function that ends with a pass.
CODE = _with_pass(lambda: None, Kind.COMPILED).__code__
