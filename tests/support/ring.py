"""Runs a script as every member of a group: local processes with MLX's ring backend."""

import contextlib
import json
import os
import re
import socket
import subprocess
import sys
import time
from pathlib import Path

from . import hangs
from .variant import environment

# A process of MLX reads a library that another one is still compiling. The next run finds it.
UNFINISHED = re.compile(r"Could not load C\+\+ shared library|Failed to load compiled function")


def run(script, size, folder):
    """Runs ``size`` members. Raises, with all of their output, if one fails or does not end.

    A member calls :func:`meet` before it joins the group.
    """
    for attempt in range(5):
        at = folder / f"{attempt}"
        at.mkdir()
        failure = run_once(script, size, at)
        if not UNFINISHED.search(failure):
            break
    if failure:
        raise RuntimeError(failure)


def run_once(script, size, folder):
    """The failure with all members' output, or ""."""
    hosts = folder / "hosts.json"
    hosts.write_text(json.dumps([[f"127.0.0.1:{port}"] for port in free_ports(size)]))
    logs = [folder / f"{rank}.log" for rank in range(size)]
    with contextlib.ExitStack() as stack:
        members = []
        for rank, log in enumerate(logs):
            process = subprocess.Popen(
                [sys.executable, "-u", script],
                env=environment(MLX_HOSTFILE=str(hosts), MLX_RANK=str(rank)),
                stdout=stack.enter_context(log.open("w")),
                stderr=subprocess.STDOUT,
            )
            members.append(process)
            stack.callback(process.wait)
            stack.callback(process.kill)  # runs before the other callbacks
        failure = wait(members)
    if not failure:
        return ""
    printed = (f"-- member {rank}:\n{log.read_text()}" for rank, log in enumerate(logs))
    return "\n".join((failure, *printed))


def meet():
    """Waits until all members have started: MLX itself only waits for a few seconds."""
    hosts = Path(os.environ["MLX_HOSTFILE"])
    (hosts.parent / f"{os.environ['MLX_RANK']}.started").touch()
    while len(list(hosts.parent.glob("*.started"))) < len(json.loads(hosts.read_text())):
        time.sleep(0.05)


def wait(members):
    """Waits until all members have ended, or one fails: the others would wait for it."""
    end = time.monotonic() + hangs.SECONDS
    while time.monotonic() < end:
        statuses = [process.poll() for process in members]
        if any(statuses):
            return f"exit statuses {statuses}"
        if None not in statuses:
            return None
        time.sleep(0.05)
    return f"not done after {hangs.SECONDS} s"


def free_ports(n):
    """Ports of this machine that are not in use."""
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(n)]
        for s in sockets:
            s.bind(("127.0.0.1", 0))
        return [s.getsockname()[1] for s in sockets]
