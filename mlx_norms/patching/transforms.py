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

_thread = threading.local()


def over(results: object, boundary: object, written: bool) -> object:
    """``results`` with new arrays where the pass changes their graph, above ``boundary``."""
    changed = _ext.fuse_graph(results, boundary, written)
    return trees.exchange(results, changed) if changed else results


def transforming(original: Callable) -> Callable:
    """``mx.grad``, ``value_and_grad``, ``vjp`` or ``checkpoint``: the function is given first."""

    @functools.wraps(original)
    def transform(*args, **kwargs):
        fun, *others = args or [kwargs.pop("fun", None)]
        return original(_with_pass(fun), *others, **kwargs)

    return transform


def compiling(original: Callable) -> Callable:
    """``mx.compile``, whose ``outputs`` are of the same graph."""

    @functools.wraps(original)
    def compile(fun, inputs=None, outputs=None, shapeless=False):
        fun = _with_pass(fun, outputs, is_compiled=True)
        return original(fun, inputs=inputs, outputs=outputs, shapeless=shapeless)

    return compile


def _with_pass(fun: Callable, outputs: object = None, is_compiled: bool = False) -> Callable:
    if not callable(fun):
        return fun  # MLX says so

    @functools.wraps(fun)
    def passed(*args, **kwargs):
        scope = current()
        # A function that is compiled in another is part of the other's graph.
        is_inner = is_compiled and getattr(_thread, "depth", 0)
        if not scope.acts or scope.fusion is Fusion.NEVER or is_inner:
            return fun(*args, **kwargs)
        _thread.depth = getattr(_thread, "depth", 0) + 1
        try:
            results = fun(*args, **kwargs)
        finally:
            _thread.depth -= 1
        written = scope.written or scope.fusion is Fusion.BY_GRAPH_PASS
        return over((results, outputs), (args, kwargs), written)[0]

    return passed


# Of every function that ends with a pass.
CODE = _with_pass(lambda: None).__code__
