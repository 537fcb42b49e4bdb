"""Where the replaced functions act: in the whole process, in a context, or nowhere."""

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
        acts: Whether they are ours; else they are what they replaced.
        fusion: What to do about a pending sum.
        trace: Whether call sites are recorded.
        projections: Whether norms are computed with the products that take them, on evaluation.
    """

    acts: bool = True
    fusion: Fusion = Fusion.NOW
    trace: bool = False
    projections: bool = False


STOCK = Scope(acts=False)  # of a process that is not patched
EXPORT = Scope(acts=False)  # of what is traced with mx.fast, patched or not


class _Block:
    """A ``with`` block in which a scope holds, in whatever context it runs or was copied to."""

    __slots__ = ("scope", "outer", "is_open")

    def __init__(self, scope: Scope, outer: _Block | None):
        self.scope = scope
        self.outer = outer
        self.is_open = True


_process = STOCK
_innermost: ContextVar[_Block | None] = ContextVar("mlx_norms_block", default=None)


def current() -> Scope:
    """The scope of the running code: that of its context, else that of the process."""
    block = _innermost_open()
    return block.scope if block else _process


def set_process(scope: Scope) -> None:
    """Set what holds wherever no context says otherwise, in all threads."""
    global _process
    _process = scope


@contextlib.contextmanager
def entered(scope: Scope) -> Iterator[None]:
    """Let ``scope`` hold in this context, within the ``with`` block; not where one exports."""
    if current() is EXPORT:
        scope = EXPORT
    block = _Block(scope, outer=_innermost_open())
    _innermost.set(block)
    try:
        yield
    finally:
        # Not by a token: a generator may be closed after others, and in another context.
        block.is_open = False
        _innermost.set(_innermost_open())


def _innermost_open() -> _Block | None:
    block = _innermost.get()
    while block and not block.is_open:
        block = block.outer
    return block
