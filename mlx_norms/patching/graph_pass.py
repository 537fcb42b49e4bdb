"""Fusion by a pass over the graph of a function's results."""

from __future__ import annotations

import functools
from collections.abc import Callable

import mlx.core as mx
from mlx.utils import tree_flatten, tree_map

from .. import _ext
from .._ext import Fusion
from . import replaced
from .scope import EXPORT, Scope, current, entered

_SCOPE = Scope(fusion=Fusion.BY_GRAPH_PASS)


def fuse(fn: Callable) -> Callable:
    """Have a function's norms computed by this package, and fused with the sums they take.

    Where :func:`mlx_norms.patch` fuses a sum at the moment its norm is asked for, in place, this
    looks at the graph of what ``fn`` returned and builds it anew from the fused norms on. No array
    changes. So ``fn`` should be pure: what it keeps elsewhere, such as a cache, stays as it was
    and is computed apart.

    Arguments may be pending, and stay as they are. Pending arrays that ``fn`` finds elsewhere are
    looked at too, and what a fused norm needs of them is computed once more. What a fused function
    computes cannot pass ``mx.export_function``, unless it is patched.

    Args:
        fn (Callable): A function, or a module, of any arguments. It returns arrays, in lists,
          tuples and dicts of any nesting.

    Returns:
        Callable: A function of the same arguments and results. It can be given to
        :func:`mx.compile` and to MLX's transforms.

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
        old = _arrays(results)
        new = _ext.fuse_graph(old, _arrays((args, kwargs)))
        by_id = {id(a): b for a, b in zip(old, new, strict=True)}
        return tree_map(lambda leaf: by_id.get(id(leaf), leaf), results)

    return fused


def _arrays(tree: object) -> list[mx.array]:
    return [leaf for _, leaf in tree_flatten(tree) if isinstance(leaf, mx.array)]
