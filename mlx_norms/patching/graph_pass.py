"""Fusion by a pass over the graph of a function's results."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import ParamSpec, TypeVar

from . import replaced, transforms
from .scope import EXPORT, Scope, current, entered

P = ParamSpec("P")
T = TypeVar("T")

_SCOPE = Scope()


def fuse(fn: Callable[P, T]) -> Callable[P, T]:
    """Compute a function's norms with this package, fused with what stands around them.

    This function looks at the graph of what ``fn`` returned and rebuilds it from the fused norms
    on; no array changes. Norms may be those of ``mx.fast`` or be written in MLX's operations. A
    norm takes residual adds, products and norms before it, and after it ``1 + scale``, ``shift``,
    an activated gate, an activation, a cast and a rope, as far as we have an op for it. So ``fn``
    should be pure: an array that it stores but does not return, such as a cache, keeps its old
    graph and is computed separately.

    Arguments may be pending, and stay as they are, and so do pending arrays that ``fn`` finds
    elsewhere, unless nothing else holds them. The results of a
    fused function cannot pass through ``mx.export_function``, unless it is patched.

    Args:
        fn (Callable): A function or module, with any arguments. The arrays that it returns are
          looked for in nested lists, tuples and dicts of any class, including modules. Arrays in
          other objects, such as dataclasses, are correct, but not fused.

    Returns:
        Callable: A function of the same arguments. It returns what ``fn`` returned: the same lists,
        dicts and other objects, with the new arrays set in them, and new tuples of the same class.
        It can be passed to :func:`mx.compile` and to MLX's transforms.

    Raises:
        TypeError: If ``fn`` cannot be called.

    Example:
        >>> block = mlx_norms.fuse(lambda x, r, w: mx.fast.rms_norm(x + r, w, 1e-5))
    """

    if not callable(fn):
        raise TypeError(f"[fuse] fn must be a function or a module but is {type(fn).__name__}.")

    @functools.wraps(fn)
    def fused(*args: P.args, **kwargs: P.kwargs) -> T:
        if current() is EXPORT:
            return fn(*args, **kwargs)
        with replaced.used(), entered(_SCOPE):
            results = fn(*args, **kwargs)
        return transforms.over(results, (args, kwargs))

    return fused
