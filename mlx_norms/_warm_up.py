"""The first uses of a program's kernels, made when nobody waits for them."""

from __future__ import annotations

import contextlib
import sys
import threading
import time
from collections.abc import Awaitable, Callable, Iterator
from typing import NamedTuple

import mlx.core as mx

from . import _ext

_EVERY = 0.1  # seconds between two looks at what has been compiled


class WarmUp(NamedTuple):
    """What a call of :func:`warm_up` did.

    Args:
        kernels (int): The kernels of this package that the process compiled meanwhile, or on CUDA
          loaded from disk; 0 if none was left to do, and on a CPU.
        seconds (float): The seconds that the call took.
    """

    kernels: int
    seconds: float


def warm_up(function: Callable[..., object], *example: object, progress: bool = True) -> WarmUp:
    """Run a function once, so that later calls find their kernels compiled and checked.

    The first use of a kernel compiles it; on Metal it is then checked against MLX's ops, and other
    threads' launches of MLX's kernels wait while it compiles. This function calls
    ``function(*example)`` here and now, patched or not, evaluates the arrays that it returns, and
    returns when that is done. MLX's own kernels are compiled by it, too.

    A kernel is of some dtypes and row lengths, and for few rows of their number. So call this after
    :func:`mlx_norms.patch`, in the way in which the program will run, and once for each shape that
    differs much: a language model with a prompt and with one token.

    It evaluates: what the function changes is changed, such as a cache, of which the caller passes
    a copy. An array that the function neither returns nor evaluates is not computed.

    Args:
        function (Callable): A function or module.
        *example: The arguments of the call, arrays or anything else.
        progress (bool): Whether to print a line to the standard error stream for each kernel of
          this package, when it is ready: its name and the seconds that it took. Nothing is printed
          if none was left to do. Default: ``True``.

    Returns:
        WarmUp: The number of kernels, and the seconds of the call.

    Raises:
        TypeError: If ``function`` cannot be called, or if it returns a generator or a coroutine,
          which has not run. What ``function`` itself raises is not changed.

    Example:
        >>> mlx_norms.patch()
        >>> tokens = mx.array([tokenizer.encode("Hello")])
        >>> mlx_norms.warm_up(model, tokens)
        >>> mlx_norms.warm_up(model, tokens[:, :1])
    """
    if not callable(function):
        raise TypeError(
            f"[warm_up] function must be a function or a module but is {type(function).__name__}."
        )
    seen, started = len(_ext.first_uses()), time.perf_counter()
    with _printed(seen) if progress and sys.stderr else contextlib.nullcontext():
        results = function(*example)
        if isinstance(results, Iterator | Awaitable):
            raise TypeError(
                f"[warm_up] function returned a {type(results).__name__}, which has not run: pass "
                "a function that runs it, as lambda: list(...)."
            )
        mx.eval(results)
    return WarmUp(len(_ext.first_uses(seen)), time.perf_counter() - started)


@contextlib.contextmanager
def _printed(seen: int) -> Iterator[None]:
    """Lines for the kernels after the first ``seen``, by a thread: MLX and we compile in C++."""
    ended = threading.Event()

    def run() -> None:
        nonlocal seen
        is_last = False
        while not is_last:
            is_last = ended.wait(_EVERY)
            for kernel, seconds in _ext.first_uses(seen):
                print(f"mlx_norms: {kernel} is ready, {seconds:.2f} s", file=sys.stderr, flush=True)
                seen += 1

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()
