"""What of MLX is replaced while anything is patched, and by what."""

from __future__ import annotations

import functools
import threading
import warnings
from collections.abc import Callable

import mlx.core as mx

from .. import _ext
from . import call_sites, layers, trees
from .scope import EXPORT, current, entered


def _norm(original: Callable, ours: Callable) -> Callable:
    """``original``, or ``ours`` with the same arguments if the scope says so."""

    @functools.wraps(original)
    def norm(*args, **kwargs):
        scope = current()
        if not scope.acts:
            return original(*args, **kwargs)
        tell = call_sites.recorder() if scope.trace else None
        try:
            return ours(scope.fusion, tell, *args, **kwargs)
        except TypeError:
            return original(*args, **kwargs)  # whose error message fits the caller's arguments

    return norm


def _rms_norm(original: Callable) -> Callable:
    return _norm(original, _ext.patched_rms_norm)


def _layer_norm(original: Callable) -> Callable:
    return _norm(original, _ext.patched_layer_norm)


def _eval(original: Callable) -> Callable:
    """``mx.eval`` or ``mx.async_eval``, after a graph pass over its arguments."""

    @functools.wraps(original)
    def evaluate(*args):
        if current().projections:
            _ext.fuse_projections(trees.arrays(args))
        return original(*args)

    return evaluate


def _in_stock_scope(fun: Callable) -> Callable:
    def stock(*args, **kwargs):
        with entered(EXPORT):
            return fun(*args, **kwargs)

    return stock


def _export_function(original: Callable) -> Callable:
    @functools.wraps(original)
    def export_function(file_or_callback, fun, *args, **kwargs):
        return original(file_or_callback, _in_stock_scope(fun), *args, **kwargs)

    return export_function


def _exporter(original: Callable) -> Callable:
    @functools.wraps(original)
    def exporter(file, fun, **kwargs):
        return original(file, _in_stock_scope(fun), **kwargs)

    return exporter


# MLX can only export its own primitives, so exported functions are traced with mx.fast.
_REPLACEMENTS = [
    (mx.fast, "rms_norm", _rms_norm),
    (mx.fast, "layer_norm", _layer_norm),
    (mx, "export_function", _export_function),
    (mx, "exporter", _exporter),
    (mx, "eval", _eval),
    (mx, "async_eval", _eval),
    *layers.replacements(),
]

_lock = threading.RLock()  # re-entrant: a garbage-collected model may release at any point
_users = 0
_installed: list[tuple[object, str, Callable, Callable]] = []


def acquire() -> bool:
    """Replace the functions until :func:`release`; True if they were not replaced before."""
    global _users
    with _lock:
        _users += 1
        if _users > 1:
            return False
        for module, name, make in _REPLACEMENTS:
            original = getattr(module, name)
            replacement = make(original)
            setattr(module, name, replacement)
            _installed.append((module, name, original, replacement))
        return True


def release() -> None:
    """Restore the functions if this was the last user."""
    global _users
    taken = []
    with _lock:
        _users -= 1
        if _users > 0:
            return
        for module, name, original, replacement in _installed:
            if getattr(module, name) is replacement:
                setattr(module, name, original)
            else:
                taken.append(f"{module.__name__}.{name}")
        _installed.clear()
    for name in taken:
        warnings.warn(
            f"{name} has been replaced since mlx_norms patched it, and is left as it is.",
            stacklevel=2,
        )
