"""Runs a function in a process of its own, which may die of it."""

import contextlib
import multiprocessing
import os
import resource
import signal

MOST = 600  # seconds in all: corrupted memory may also make a process wait


def in_own_process(f, seconds, start="fork"):
    """What f tells, and how its process ended if not well.

    Args:
        f: Is called with the function that tells.
        seconds: For how long it may compute.
        start: "spawn" if a forked process cannot use the device; f is then pickled.
    """
    context = multiprocessing.get_context(start)
    reads, writes = context.Pipe(duplex=False)
    process = context.Process(target=_run, args=(f, writes, seconds))
    process.start()
    writes.close()
    told = []
    with contextlib.suppress(EOFError):
        while True:
            told.append(reads.recv())
    process.join()
    return told, _ended(process.exitcode, told)


def _run(f, writes, seconds):
    """Ends the process, without what MLX does at its end."""
    with contextlib.suppress(BaseException):
        resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        signal.alarm(MOST)
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, 1)
        os.dup2(nowhere, 2)
        try:
            f(lambda *what: writes.send(what))
        except Exception as error:
            writes.send(("raised", f"{type(error).__name__}: {error}"))
            os._exit(2)
        os._exit(0)
    os._exit(1)


def _ended(status, told):
    if status == 0:
        return None
    if status == 2 and told and told[-1][0] == "raised":
        return told.pop()[1]
    return f"died of {signal.Signals(-status).name}" if status < 0 else f"ended with {status}"
