"""Fusion by a pass over the graph of a function's results."""

from __future__ import annotations

import functools
from collections.abc import Callable

from .. import _ext
from .._ext import Fusion
from . import replaced, trees
from .scope import EXPORT, Scope, current, entered

_SCOPE = Scope(fusion=Fusion.BY_GRAPH_PASS)


def fuse(fn: Callable) -> Callable:
    """Have a function's norms computed by this package, and fused with the sums they take.

    Where :func:`mlx_norms.patch` fuses a sum at the moment its norm is asked for, in place, this
    looks at the graph of what ``fn`` returned and builds it anew from the fused norms on. No array
    changes. So ``fn`` should be pure: what it keeps and does not return, such as a cache, stays as
    it was and is computed apart.

    Arguments may be pending, and stay as they are. Pending arrays that ``fn`` finds elsewhere are
    looked at too, and what a fused norm needs of them is computed once more. What a fused function
    computes cannot pass ``mx.export_function``, unless it is patched.

    Args:
        fn (Callable): A function, or a module, of any arguments. The arrays that it returns are
          looked at in lists, tuples and dicts of any nesting and class, modules among them. Those
          in other objects, such as dataclasses, are right, but their sums are not fused.

    Returns:
        Callable: A function of the same arguments. What it returns is what ``fn`` returned: the
        same lists, dicts and other objects, with arrays of the new graph set in them, and tuples
        of the same class. It can be given to :func:`mx.compile` and to MLX's transforms.

    Example:
        >>> block = mlx_norms.fuse(lambda x, r, w: mx.fast.rms_norm(x + r, w, 1e-5))
    """

    @functools.wraps(fn)
    def fused(*args, **kwargs):
        if current() is EXPORT:
            return fn(*args, **kwargs)
        replaced.acquire()
        try:
            with entered(_SCOPE):
                results = fn(*args, **kwargs)
        finally:
            replaced.release()
        old = trees.arrays(results)
        new = _ext.fuse_graph(old, trees.arrays((args, kwargs)))
        return trees.exchange(results, {id(a): b for a, b in zip(old, new, strict=True)})

    return fused
