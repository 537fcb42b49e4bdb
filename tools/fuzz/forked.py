"""Runs a function in a forked process, which may die of it."""

import contextlib
import json
import os
import resource
import signal

MOST = 600  # seconds in all: corrupted memory may also make a process wait


def forked(f, seconds):
    """What f tells, and how its process ended if not well.

    Args:
        f: Is called with the function that tells.
        seconds: For how long it may compute.
    """
    reads, writes = os.pipe()
    child = os.fork()
    if not child:
        os.close(reads)
        with contextlib.suppress(BaseException):
            _run(f, writes, seconds)
        os._exit(1)
    os.close(writes)
    with os.fdopen(reads) as lines:
        told = [json.loads(line) for line in lines if line.endswith("\n")]
    _, status = os.waitpid(child, 0)
    return told, _ended(os.waitstatus_to_exitcode(status), told)


def _run(f, writes, seconds):
    resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    signal.alarm(MOST)
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 1)
    os.dup2(nowhere, 2)

    def tell(*what):
        os.write(writes, json.dumps(what).encode() + b"\n")

    try:
        f(tell)
    except Exception as error:
        tell("raised", f"{type(error).__name__}: {error}")
        os._exit(2)
    os._exit(0)


def _ended(status, told):
    if status == 0:
        return None
    if status == 2 and told and told[-1][0] == "raised":
        return told.pop()[1]
    return f"died of {signal.Signals(-status).name}" if status < 0 else f"ended with {status}"
