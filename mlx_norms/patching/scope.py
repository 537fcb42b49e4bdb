"""Where the replaced functions take effect: in the process, in a context, or nowhere."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from contextvars import ContextVar
from dataclasses import dataclass

from .._ext import Fusion


@dataclass(frozen=True)
class Scope:
    """How the replaced functions behave in some context.

    Args:
        acts: Whether to call ours; if not, the original functions.
        fusion: How to fuse a pending residual add.
        trace: Whether to record call sites.
        projections: Whether evaluation computes norms together with the matmuls that read them.
    """

    acts: bool = True
    fusion: Fusion = Fusion.NOW
    trace: bool = False
    projections: bool = False


STOCK = Scope(acts=False)  # a process that is not patched
EXPORT = Scope(acts=False)  # an export, traced with mx.fast even if patched


class _Block:
    """A ``with`` block in which a scope holds, also in contexts that were copied from its own."""

    __slots__ = ("scope", "outer", "is_open")

    def __init__(self, scope: Scope, outer: _Block | None):
        self.scope = scope
        self.outer = outer
        self.is_open = True


_process = STOCK
_innermost: ContextVar[_Block | None] = ContextVar("mlx_norms_block", default=None)


def current() -> Scope:
    """The scope of the running code: that of its context, or else that of the process."""
    block = _innermost_open()
    return block.scope if block else _process


def set_process(scope: Scope) -> None:
    """Set the scope of all code, in any thread, whose context has none."""
    global _process
    _process = scope


@contextlib.contextmanager
def entered(scope: Scope) -> Iterator[None]:
    """Set the scope of this context within the ``with`` block, except during an export."""
    if current() is EXPORT:
        scope = EXPORT
    block = _Block(scope, outer=_innermost_open())
    _innermost.set(block)
    try:
        yield
    finally:
        # No ContextVar token: a generator may be closed out of order, and in another context.
        block.is_open = False
        _innermost.set(_innermost_open())


def _innermost_open() -> _Block | None:
    block = _innermost.get()
    while block and not block.is_open:
        block = block.outer
    return block
