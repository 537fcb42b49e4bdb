"""Interrupts, as Ctrl-C causes them, at chosen instructions and whatever the machine's speed."""

import _thread
import gc
import signal
import sys
from collections.abc import Callable


class _Signal(int):
    # A property in C: to read it is no call, after which Python would look for interrupts.
    pending = property(_thread.interrupt_main)


_SIGINT = _Signal(signal.SIGINT)


def call(function: Callable, files: set[str], first: int, times: float) -> None:
    """Call ``function`` with interrupts.

    One is pending from the instruction ``first`` of the code in ``files`` on, until Python looks
    for it and raises KeyboardInterrupt, and then another, up to this number of times. Where Python
    looks, at calls and at a loop's jump back, is its own affair. The exception has the number of
    the instruction after the first interrupt.
    """
    executed = raised = after = 0
    lost = []

    def trace(frame, event, arg):
        nonlocal executed
        if frame.f_code.co_filename not in files:
            return None
        frame.f_trace_opcodes = True
        executed += event == "opcode"
        # Python looks as this function begins, too, where handle() does not raise: so each time.
        if executed > first and raised < times:
            _SIGINT.pending  # noqa: B018
        return trace

    def handle(signum, frame):
        nonlocal raised, after
        if frame.f_code.co_filename != __file__:
            after = after or executed
            raised += 1
            raise KeyboardInterrupt(after)

    hook, sys.unraisablehook = sys.unraisablehook, lost.append
    collects = gc.isenabled()
    gc.disable()  # whose callbacks are others' code, where an interrupt would be lost
    handler = signal.signal(signal.SIGINT, handle)
    outer = sys.gettrace()
    try:
        sys.settrace(trace)
        function()
    finally:
        sys.settrace(outer)
        signal.signal(signal.SIGINT, handler)
        sys.unraisablehook = hook
        if collects:
            gc.enable()
        assert not lost, lost
    assert not raised, "an interrupt was swallowed"
