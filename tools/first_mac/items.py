"""What a process of a step says: a line of JSON when an item begins, and one when it has ended.

So nothing is lost if the process is ended, and what ended it is known: the item that began last.
"""

from __future__ import annotations

import json
import os
import re
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path

PASSED, FAILED, NOT_RUN, TIMED_OUT = "passed", "FAILED", "NOT RUN", "TIMED OUT"

FOUND = "FIRST_MAC_FOUND"  # the file of the lines
SKIPPED = "FIRST_MAC_SKIPPED"  # a file of items that an earlier process has ended, or ended it
TINY = "FIRST_MAC_TINY"  # 1: as little as tries each step

Item = tuple[str, Callable[[], Mapping[str, object] | None]]


class NotRun(Exception):
    """This machine cannot do it. The second argument, if any, is the command that helps."""


def is_tiny() -> bool:
    return os.environ.get(TINY) == "1"


def write(**line: object) -> None:
    """Adds a line to the file that the runner reads, if there is one."""
    if path := os.environ.get(FOUND):
        with open(path, "a", encoding="utf-8") as file:
            file.write(json.dumps(line, default=str) + "\n")


def read(path: Path) -> list[dict]:
    """The lines of a file; the last may have been cut off."""
    found = []
    for line in path.read_text(encoding="utf-8").splitlines() if path.exists() else []:
        try:
            found.append(json.loads(line))
        except ValueError:
            continue
    return found


def skipped() -> set[str]:
    path = os.environ.get(SKIPPED)
    return set(json.loads(Path(path).read_text())) if path else set()


def said(error: BaseException) -> str:
    """An error in one paragraph, without this user's name in its paths."""
    return private(f"{type(error).__name__}: {error}".strip())[:1500]


def private(text: str) -> str:
    """A text that is sent to others: the home folder is ~."""
    home = os.path.expanduser("~")
    return re.sub(re.escape(home) + r"(?=/|\b)", "~", text) if len(home) > 1 else text


def run(items: Iterable[Item]) -> None:
    """Runs all items but the skipped ones. What one raises is its verdict, and ends nothing else.

    A result may have its own "status" and "seconds".
    """
    listed = list(items)
    write(planned=[name for name, _ in listed])
    done = skipped()
    for name, function in listed:
        if name in done:
            continue
        write(begin=name)
        print(f"{name} ...", flush=True)
        started = time.perf_counter()
        try:
            found = {"status": PASSED} | dict(function() or {})
        except NotRun as error:
            reason, *help = error.args
            found = {"status": NOT_RUN, "reason": reason, "help": help[0] if help else None}
        except Exception as error:  # whatever a library or a driver raises is reported
            found = {"status": FAILED, "reason": said(error)}
        write(**({"end": name, "seconds": round(time.perf_counter() - started, 3)} | found))


def ended(lines: Iterable[dict]) -> Iterator[dict]:
    """The items of some lines, each with its name first."""
    for line in lines:
        if "end" in line:
            yield {"item": line["end"]} | {key: line[key] for key in line if key != "end"}
