"""The pass over the graph of what a function returns, in MLX's transforms while they are patched.

A transform is given a function that ends with the pass: so the graph has the norms of this package
before MLX differentiates or compiles it.
"""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable

from .. import _ext
from .._ext import Fusion
from . import trees
from .scope import current

_thread = threading.local()  # how many traces there are around, and of these derivatives


def over(results: object, boundary: object, written: bool) -> object:
    """``results`` with new arrays where the pass changes their graph, above ``boundary``."""
    changed = _ext.fuse_graph(results, boundary, written)
    return trees.exchange(results, changed) if changed else results


def transforming(original: Callable, *, traces: bool = True, passes: bool = True) -> Callable:
    """A transform that is given a function first.

    All but ``checkpoint`` trace it: a function that is compiled in a trace is part of its graph.
    ``mx.jvp`` and ``mx.vmap`` make no pass; functions within know that they are around.
    """

    @functools.wraps(original)
    def transform(*args, **kwargs):
        fun, *others = args or [kwargs.pop("fun", None)]
        return original(_with_pass(fun, traces=traces, passes=passes), *others, **kwargs)

    return transform


def compiling(original: Callable) -> Callable:
    """``mx.compile``, whose ``outputs`` are of the same graph."""

    @functools.wraps(original)
    def compile(fun, inputs=None, outputs=None, shapeless=False):
        fun = _with_pass(fun, outputs, is_compiled=True)
        return original(fun, inputs=inputs, outputs=outputs, shapeless=shapeless)

    return compile


def _with_pass(
    fun: Callable,
    outputs: object = None,
    *,
    is_compiled: bool = False,
    traces: bool = True,
    passes: bool = True,
) -> Callable:
    if not callable(fun):
        return fun  # MLX says so

    @functools.wraps(fun)
    def passed(*args, **kwargs):
        scope = current()
        depth, derivatives = getattr(_thread, "traces", 0), getattr(_thread, "derivatives", 0)
        is_seen_later = is_compiled and depth > 0
        # Within a derivative the arrays of the outer function are tracers, too: those stay as they
        # are, until the outer function's pass.
        is_inner = traces and not is_compiled and derivatives > 0
        if not scope.acts or scope.fusion is Fusion.NEVER or is_seen_later:
            return fun(*args, **kwargs)
        _thread.traces = depth + traces
        _thread.derivatives = derivatives + (traces and not is_compiled)
        try:
            results = fun(*args, **kwargs)
        finally:
            _thread.traces, _thread.derivatives = depth, derivatives
        if is_inner or not passes:
            return results
        written = scope.written or scope.fusion is Fusion.BY_GRAPH_PASS
        return over((results, outputs), (args, kwargs), written)[0]

    return passed


# Of every function that ends with a pass.
CODE = _with_pass(lambda: None).__code__
