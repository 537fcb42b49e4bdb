"""Runs the processes of a step: each in time, and again after an item that ended it."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import tempfile
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from . import items
from .items import FAILED, NOT_RUN, PASSED, TIMED_OUT

_TAIL = 3000  # characters of what a process printed
_STARTS = 6  # of a process whose items end it
_TURN = 0.05
# Said of a virtual machine's GPU whose compiler serves no process any more.
WEDGED = "code=2"


_alive: set[int] = set()  # groups of processes
_ended = threading.Event()


def end_all() -> None:
    """Ends all processes, and starts none any more: the run was interrupted."""
    _ended.set()
    for group in [*_alive]:
        _kill(group)


def _kill(group: int) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(group, signal.SIGKILL)


@dataclass(frozen=True)
class Part:
    """A process of a step.

    Attributes:
        command: What is run, in the checkout.
        variables: Added to the environment.
        share: Of the step's seconds that are left, beside the shares of the processes after it.
        cannot: Why it is not run at all, and the command that helps.
    """

    name: str
    command: Sequence[str | os.PathLike]
    variables: Mapping[str, str] = field(default_factory=dict)
    share: float = 1
    cannot: tuple[str, ...] = ()


def verdict(statuses: Sequence[str]) -> str:
    """That of several: the worst, and NOT RUN if nothing was."""
    for status in (FAILED, TIMED_OUT):
        if status in statuses:
            return status
    return PASSED if PASSED in statuses else NOT_RUN


def run(part: Part, seconds: float, environment: Mapping[str, str], folder: Path) -> dict:
    """Runs a part for so many seconds at most; what is found is of JSON's types.

    Its output goes to a file in the folder. When it ends, so does every process that it started.
    """
    found = {"part": part.name, "limit": round(seconds, 1)}
    if part.cannot:
        reason, *help = part.cannot
        said = {"reason": reason, "help": help[0] if help else None}
        return found | {"status": NOT_RUN, "seconds": 0.0, "items": []} | said
    log = folder / f"{part.name.replace('/', '_').replace(' ', '_')}.txt"
    log.write_text("")
    begin = time.monotonic()
    done: list[dict] = []
    notes: dict[str, object] = {}
    planned: list[str] = []
    with tempfile.TemporaryDirectory() as directory:
        for start in range(_STARTS):
            lines_file, skipped = Path(directory, f"found_{start}"), Path(directory, "skipped")
            skipped.write_text(json.dumps([item["item"] for item in done]))
            variables = {items.FOUND: str(lines_file), items.SKIPPED: str(skipped)}
            ended = _process(
                part.command,
                {**environment, **part.variables, **variables},
                seconds - (time.monotonic() - begin),
                log,
            )
            lines = items.read(lines_file)
            done += items.ended(lines)
            planned = next((line["planned"] for line in lines if "planned" in line), planned)
            pending = _pending(lines)
            if ended == 0 or not pending or _ended.is_set():
                break
            # It ended, or was ended, within an item: that is the item's verdict.
            over = ended is None
            reason = f"not done within the {found['limit']:g} s of its process"
            done.append(
                {
                    "item": pending,
                    "status": TIMED_OUT if over else FAILED,
                    "reason": reason if over else f"it ended its process: {_how(ended)}",
                    "said": _tail(log),
                }
            )
            if over:
                break
    names = {item["item"] for item in done}
    missing = [name for name in planned if name not in names]
    statuses = [item["status"] for item in done]
    if ended is None and planned and not missing and not pending:
        notes["reason"] = "all was said, but its process did not end by itself"
    elif ended is None:
        statuses.append(TIMED_OUT)
        notes["reason"] = f"not done within {found['limit']:g} s"
    elif ended != 0 and not any(status == FAILED for status in statuses):
        statuses.append(FAILED)
        notes["reason"] = f"its process ended: {_how(ended)}"
    elif missing:
        statuses.append(FAILED)
        notes["reason"] = f"items end their process again and again: {len(missing)} were not tried"
    elif not statuses:
        statuses.append(FAILED)
        notes["reason"] = "it said nothing"
    status = verdict(statuses)
    if status in (FAILED, TIMED_OUT):
        notes["said"] = _tail(log)
    seconds = round(time.monotonic() - begin, 1)
    lists = {"items": done, "not_reached": missing}
    return found | {"status": status, "seconds": seconds} | notes | lists


def _process(command, environment, seconds: float, log: Path) -> int | None:
    """The exit status of a process in a group of its own; None if it was ended in the end."""
    with log.open("ab") as output:
        try:
            process = subprocess.Popen(
                [*map(str, command)],
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        except OSError as error:
            output.write(f"{error}\n".encode())
            return 127
        _alive.add(process.pid)
        try:
            return process.wait(0 if _ended.is_set() else max(seconds, _TURN))
        except subprocess.TimeoutExpired:
            return None
        finally:
            _alive.discard(process.pid)
            _kill(process.pid)
            process.wait()


def _pending(lines: Sequence[dict]) -> str | None:
    """The item that began and did not end."""
    begun = [line["begin"] for line in lines if "begin" in line]
    over = {line["end"] for line in lines if "end" in line}
    return next((name for name in reversed(begun) if name not in over), None)


def _how(status: int) -> str:
    if status >= 0:
        return f"exit status {status}"
    try:
        return f"by {signal.Signals(-status).name}"
    except ValueError:
        return f"by signal {-status}"


def _tail(log: Path) -> str:
    text = items.private(log.read_text(encoding="utf-8", errors="replace")).strip()
    return text if len(text) <= _TAIL else f"...{text[-_TAIL:]}"
