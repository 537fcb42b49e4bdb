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
    """

    acts: bool = True
    fusion: Fusion = Fusion.NOW
    trace: bool = False


# As in a process that was never patched; for what has to be traced with mx.fast.
STOCK = Scope(acts=False)

_process = STOCK
context: ContextVar[Scope | None] = ContextVar("mlx_norms_scope", default=None)


def current() -> Scope:
    """The scope of the running code: that of its context, else that of the process."""
    return context.get() or _process


def set_process(scope: Scope) -> None:
    """Set what holds wherever no context says otherwise, in all threads."""
    global _process
    _process = scope


@contextlib.contextmanager
def entered(scope: Scope) -> Iterator[None]:
    """Let ``scope`` hold in this context, within the ``with`` block."""
    token = context.set(scope)
    try:
        yield
    finally:
        context.reset(token)
