"""``with`` blocks that no interrupt, of Ctrl-C or a timer, leaves entered or half left."""

from __future__ import annotations

import contextlib
import functools
import io
from collections.abc import Callable, Iterator


class Block(contextlib.ContextDecorator, io.IOBase):
    """As of ``contextlib.contextmanager``: a generator that is closed when the block is left.

    Python raises an interrupt, or runs another thread, as a function begins, as a loop jumps back
    and after a call of C; so an ``__exit__`` of Python may be over before its first line. That of
    ``IOBase`` is in C and calls ``close``, which is the generator's. What follows the ``yield``
    always runs and, up to the first call or loop, in one go.
    """

    def __init__(self, generate: Callable, *args, **kwargs):
        self._made_of = functools.partial(generate, *args, **kwargs)
        self._generator = self._made_of()
        self.close = self._generator.close

    def __enter__(self):
        try:
            return next(self._generator)
        except StopIteration:
            raise RuntimeError(
                "[patched] the block has been entered before: call patched() for another."
            ) from None
        except BaseException:
            self.close()
            raise

    def _recreate_cm(self) -> Block:
        return type(self)(self._made_of)  # of a decorator, for each call of its function


def block(generate: Callable[..., Iterator]) -> Callable[..., Block]:
    """Makes a function of blocks out of a generator function that yields once."""
    return functools.partial(Block, generate)
