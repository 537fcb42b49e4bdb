"""For those without a Mac: `.ci/mac quick` on the simulated device, with each step made to fail.

    python tools first_mac.rehearsal [--out FOLDER] [FAULT ...]

A table says what was made to fail, what the file then says of it, and whether it says all else. By
default all faults, each a whole run; "none" is the run without one, and a+b one with both.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import os
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from . import __main__ as first_mac
from . import items, steps

ROOT = Path(__file__).parents[2]
FAULTS = Path(__file__).parent / "faults"
# Refuses one text and knows two versions, as Xcode 16 does.
_XCRUN = """#!/bin/sh
for argument do
  case $argument in
    --version) echo "Apple metal version 0 (a stand-in)"; exit ;;
    -std=metal4.*) echo "error: invalid value '${argument#-std=}' in '$argument'"; exit 1 ;;
    */rope.metal) echo "$argument:67:14: error: reference to 'level' is ambiguous"; exit 1 ;;
  esac
done
"""
_NO_TOOLCHAIN = """#!/bin/sh
echo "error: cannot execute tool 'metal' due to missing Metal Toolchain" >&2
exit 1
"""


@dataclass(frozen=True)
class Fault:
    """What is made to fail.

    Attributes:
        what: In words.
        step, words: Where the file has to say so, and what must be in the reason.
        status: What it has to call it.
        xcrun: The text of a stand-in for Xcode's tool.
    """

    what: str
    step: str = ""
    words: str = ""
    status: str = items.FAILED
    xcrun: str = ""
    also: tuple[str, ...] = field(default=())  # steps that it takes along


RUNTIME = ("texts", "selftest", "validation", "tests", "bench", "choices", "models")
FAULTS_OF = {
    "none": Fault("nothing"),
    "compiler": Fault(
        "the run-time compiler, for every kernel", "texts", "not usable", also=RUNTIME
    ),
    "library": Fault("one library's text", "texts", "not usable: rope", also=RUNTIME),
    "limit": Fault(
        "one pipeline's limit: 32 threads", "selftest", "32 at most", also=RUNTIME
    ),
    "wrong": Fault("a kernel writes nothing", "selftest", "is off by", also=("validation",)),
    "hang": Fault(
        "one library's process hangs", "selftest", "not done within", items.TIMED_OUT,
    ),
    "abort": Fault("an abort in a test", "tests", "SIGABRT"),
    "row": Fault("a row of the bench raises", "bench", "maximum buffer", also=("choices",)),
    "model": Fault("there is no mlx_lm", "models", "needs packages", items.NOT_RUN),
    "xcode": Fault("Xcode 16, which refuses a text", "metallibs", "ambiguous", xcrun=_XCRUN),
    "toolchain": Fault(
        "Xcode 26 without its compiler", "metallibs", "no compiler of Metal", items.NOT_RUN,
        xcrun=_NO_TOOLCHAIN,
    ),
}  # fmt: skip


@contextlib.contextmanager
def planted(names: Sequence[str], folder: Path) -> Iterator[None]:
    bin = folder / "bin"
    bin.mkdir()
    for text in filter(None, [FAULTS_OF[name].xcrun for name in names]):
        (bin / "xcrun").write_text(text)
        (bin / "xcrun").chmod(0o755)
    path = os.pathsep.join([str(bin), os.environ["PATH"]])
    variables = {"FIRST_MAC_FAULTS": str(FAULTS), "FIRST_MAC_FAULT": "+".join(names), "PATH": path}
    variables["FIRST_MAC_ONCE"] = str(folder / "once")
    before = dict(os.environ)
    os.environ.update(variables)
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)


def problems(found: Mapping) -> list[tuple[str, str, str]]:
    """The step, the status and the reason of what is not passed."""
    rows = []
    for step in found["steps"]:
        for part in step["parts"]:
            for item in [*part["items"], part]:
                if item["status"] != items.PASSED:
                    reason = " ".join(str(item.get(key) or "") for key in ("reason", "help"))
                    rows.append((step["step"], item["status"], reason))
    return rows


def judged(name: str, found: Mapping) -> list[str]:
    """What the file does not say of a fault."""
    fault = FAULTS_OF[name]
    said = any(
        step == fault.step and status == fault.status and fault.words in reason
        for step, status, reason in problems(found)
    )
    return [] if said or not fault.step else [f"{fault.step} lacks {fault.words!r}, {fault.status}"]


def judged_rest(names: Sequence[str], found: Mapping, healthy: Mapping) -> list[str]:
    """Where steps that no fault touches say less than in a run without one."""
    missing = [] if found["finished"] else ["the run ended early"]
    touched = {step for name in names for step in (FAULTS_OF[name].step, *FAULTS_OF[name].also)}
    ours = {step["step"]: step for step in found["steps"]}
    for step in healthy["steps"]:
        name = step["step"]
        if name not in ours:
            missing.append(f"there is no {name}")
        elif name not in touched and ours[name]["status"] != step["status"]:
            missing.append(f"{name}: {ours[name]['status']}, not {step['status']}")
        elif not any(part["items"] or part.get("reason") for part in ours[name]["parts"]):
            missing.append(f"{name} says nothing")
    return missing


def rows(names: Sequence[str], found: Mapping) -> Iterator[str]:
    for name in names:
        fault = FAULTS_OF[name]
        said = [row for row in problems(found) if row[0] == fault.step and fault.words in row[2]]
        text = f"{fault.step}: {said[0][1]}, {' '.join(said[0][2].split())[:200]}" if said else ""
        yield f"| {fault.what} | {text.replace('|', '/')} |"


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("faults", nargs="*", metavar="FAULT", help=", ".join(FAULTS_OF))
    parser.add_argument("--out", type=Path, default=ROOT / "build" / "rehearsal", metavar="FOLDER")
    help = "so many times the limits: the simulated device is slow (%(default)s)"
    parser.add_argument("--stretch", type=int, default=4, metavar="N", help=help)
    args = parser.parse_args(arguments)
    status = 0
    for given in args.faults or [*FAULTS_OF]:
        names, folder = given.split("+"), args.out.resolve() / given
        with tempfile.TemporaryDirectory() as directory, planted(names, Path(directory)):
            with contextlib.redirect_stdout(io.StringIO()):
                first_mac.run(folder, True, [step.name for step in steps.STEPS], args.stretch)
        found = json.loads((folder / "first_mac.json").read_text())
        healthy = args.out / "none" / "first_mac.json"
        healthy = json.loads(healthy.read_text()) if healthy.exists() else found
        missing = [each for name in names for each in judged(name, found)]
        missing += judged_rest(names, found, healthy)
        status |= bool(missing)
        others = ", ".join(f"{step['step']} {step['status']}" for step in found["steps"])
        seconds = sum(step["seconds"] for step in found["steps"])
        print(*rows(names, found), sep="\n")
        print(f"  {given}, {seconds:.0f} s: {others}")
        print(f"  {'MISSING: ' + '; '.join(missing) if missing else 'nothing is missing'}")
        sys.stdout.flush()
    return status


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
