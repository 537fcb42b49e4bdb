"""Where the replaced functions take effect: in the process, in a context, or nowhere."""

from __future__ import annotations

from collections.abc import Iterator
from contextvars import ContextVar
from dataclasses import dataclass

from .._ext import scopes_changed
from .blocks import block


@dataclass(frozen=True, slots=True)
class Scope:
    """How the replaced functions behave in some context.

    Args:
        acts: Whether to call ours; if not, the original functions.
        fuse: Whether passes fuse norms with what stands around them.
        projections: Whether evaluation computes norms together with the matmuls that read them.
    """

    acts: bool = True
    fuse: bool = True
    projections: bool = False


STOCK = Scope(acts=False, fuse=False)  # a process that is not patched
EXPORT = Scope(acts=False, fuse=False)  # an export, traced with mx.fast even if patched


class _Entry:
    """Of a scope into a context, and into those that were copied from it, while it is open."""

    __slots__ = ("scope", "outer", "is_open")

    def __init__(self, scope: Scope, outer: _Entry | None):
        self.scope = scope
        self.outer = outer
        self.is_open = False


process = STOCK  # the scope of all code, in any thread, whose context has none
_innermost: ContextVar[_Entry | None] = ContextVar("mlx_norms_scope", default=None)


def current() -> Scope:
    """The scope of the running code: that of its context, or else that of the process."""
    entry = _innermost_open()
    return entry.scope if entry else process


def set_process(scope: Scope) -> None:
    """Set the scope of the process."""
    global process
    process = scope
    scopes_changed(0)


@block
def entered(scope: Scope) -> Iterator[None]:
    """Set the scope of this context within the ``with`` block, except during an export."""
    if current() is EXPORT:
        scope = EXPORT
    entry = _Entry(scope, outer=_innermost_open())
    _innermost.set(entry)
    try:
        entry.is_open = True
        scopes_changed(1)
        yield
    finally:
        # No ContextVar token: a generator may be closed out of order, and in another context.
        entry.is_open = False
        scopes_changed(-1)
        _innermost.set(_innermost_open())


def _innermost_open() -> _Entry | None:
    entry = _innermost.get()
    while entry and not entry.is_open:
        entry = entry.outer
    return entry
