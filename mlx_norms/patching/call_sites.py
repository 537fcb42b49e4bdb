"""Which lines of a model call norms, and the outcome of each call."""

from __future__ import annotations

import os
import sys
import threading
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import mlx.nn

import mlx_norms

# Folders of the files that may lie on the stack between a model's line and the replaced function.
_LAYERS = tuple(f"{Path(file).parent}{os.sep}" for file in (mlx_norms.__file__, mlx.nn.__file__))

_lock = threading.Lock()
_counts: Counter[tuple[str, str]] = Counter()


def recorder() -> Callable[[str], None]:
    """A function to call with the reason of the norm that is being called; it records the site."""
    site = _site()

    def record(reason: str) -> None:
        with _lock:
            _counts[site, reason] += 1

    return record


def counts() -> dict[tuple[str, str], int]:
    """The calls by (call site, reason)."""
    with _lock:
        return dict(_counts)


def reset() -> None:
    """Reset the counts."""
    with _lock:
        _counts.clear()


def _site() -> str:
    """The innermost caller that is neither this package nor ``mlx.nn``, as ``file:line``."""
    frame = sys._getframe(1)
    while frame.f_back and frame.f_code.co_filename.startswith(_LAYERS):
        frame = frame.f_back
    return f"{frame.f_code.co_filename}:{frame.f_lineno}"
