"""For who has a Mac: what only a Mac can tell, in 12 minutes and one file; not yet run on one.

    python tools first_mac [--out FOLDER] [--simulated] [STEP ...]
    python tools first_mac --list

No step keeps another from running, whatever fails in it. What was found so far is in
FOLDER/first_mac.json from the first step on, and in FOLDER/first_mac.md for people, which says what
to send where; FOLDER is build/first_mac. --simulated tries it on the simulated Metal device
(tools/hostmetal), with tiny shapes. The exit status is 1 if a step failed or was ended.
"""

from __future__ import annotations

import argparse
import concurrent.futures
import datetime
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path

from . import items, page, running, steps

ROOT = Path(__file__).parents[2]
_MOST_JOBS = 4


class Report:
    """The file, written anew after each process."""

    def __init__(self, folder: Path, simulated: bool) -> None:
        self._folder = folder
        self.found = {
            "format": 1,
            "started": datetime.datetime.now().astimezone().isoformat(timespec="seconds"),
            "limit": steps.LIMIT,
            "send": where_to_send(),
            "simulated": simulated,
            "finished": False,
            "steps": [],
        }

    def write(self) -> None:
        for name, text in (
            ("first_mac.json", json.dumps(self.found, indent=1) + "\n"),
            ("first_mac.md", page.page(self.found)),
        ):
            new = self._folder / f".{name}"
            new.write_text(text, encoding="utf-8")
            new.replace(self._folder / name)


def where_to_send() -> str:
    """The form for it: of the repository that this checkout is of, if it says that."""
    form = "open the form “A Mac's output” (.github/ISSUE_TEMPLATE/mac.yml)"
    command = ["git", "-C", str(ROOT), "remote", "get-url", "origin"]
    try:
        address = subprocess.run(command, capture_output=True, text=True).stdout.strip()
    except OSError:
        address = ""
    found = re.search(r"github\.com[:/]([\w.-]+/[\w.-]+?)(?:\.git)?/?$", address)
    where = f"https://github.com/{found[1]}/issues/new?template=mac.yml" if found else ""
    return f"{form}, {where}" if where else f"{form} of the repository that this is a checkout of"


def run_step(
    step: steps.Step,
    machine: steps.Machine,
    environment: Mapping[str, str],
    report: Report,
    jobs: int,
) -> str:
    """Runs a step's processes, whose seconds it shares among those that are left."""
    begin = time.monotonic()
    found = {"step": step.name, "about": step.about, "limit": step.seconds}
    found |= {"status": "began", "seconds": 0.0, "parts": []}
    report.found["steps"].append(found)
    report.write()
    try:
        parts = step.parts(machine)
    except Exception as error:  # a step that cannot be made is one that failed
        found |= {"status": items.FAILED, "reason": items.said(error)}
        parts = []
    jobs = min(jobs, len(parts)) if step.together else 1

    def run(place: int) -> dict:
        rest = step.seconds * machine.stretch - (time.monotonic() - begin)
        shares = sum(part.share for part in parts[place:] if not part.cannot)
        share = jobs * parts[place].share / shares if shares else 0
        return running.run(parts[place], min(share, 1) * rest, environment, machine.folder)

    with concurrent.futures.ThreadPoolExecutor(max(jobs, 1)) as pool:
        waiting = [pool.submit(run, i) for i in range(len(parts))]
        try:
            for future in concurrent.futures.as_completed(waiting):
                part = future.result()
                found["parts"].append(part)
                report.write()
                seconds = f"{part['seconds']:6.1f} s"
                print(f"   {part['part']:40} {seconds}  {part['status']}", flush=True)
        except BaseException:  # Ctrl-C, which reaches no process in a group of its own
            pool.shutdown(wait=False, cancel_futures=True)
            running.end_all()
            raise
    if parts:
        found["status"] = running.verdict([part["status"] for part in found["parts"]])
    found["seconds"] = round(time.monotonic() - begin, 1)
    report.write()
    return found["status"]


def environment_of(simulated: bool) -> dict[str, str]:
    found = dict(os.environ)
    # What is installed is tried, not the checkout's sources beside it.
    found |= {"PYTHONUNBUFFERED": "1", "PYTHONSAFEPATH": "1"}
    if simulated:
        from hostmetal.build import HostBuild
        from support.variant import environment

        build = HostBuild()
        print("Builds the simulated device: minutes at first, then seconds.", flush=True)
        build.compile()
        # Of faults in the rehearsal: their sitecustomize.py comes before the device's.
        first = [Path(path) for path in filter(None, [os.environ.get("FIRST_MAC_FAULTS")])]
        found |= environment(*first, build.site, MLX_NORMS_UNDER_TEST=str(build.package))
        found[items.TINY] = "1"
    return found


def main(arguments: list[str]) -> int:
    if arguments[:1] == ["--work"]:
        items.run(steps.listed(*arguments[1:]))
        return 0
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    names = [step.name for step in steps.STEPS]
    parser.add_argument("steps", nargs="*", metavar="STEP", help=f"of {', '.join(names)}")
    parser.add_argument("--out", type=Path, default=ROOT / "build" / "first_mac", metavar="FOLDER")
    parser.add_argument("--simulated", action="store_true")
    help = "with --simulated: so many times the limits"
    parser.add_argument("--stretch", type=int, default=1, metavar="N", help=help)
    parser.add_argument("--list", action="store_true", help="the steps and their limits")
    args = parser.parse_args(arguments)
    if unknown := set(args.steps) - set(names):
        parser.error(f"no step {', '.join(sorted(unknown))}: there are {', '.join(names)}")
    if args.list:
        for step in steps.STEPS:
            print(f"{step.name:12} {step.seconds:4} s  {step.about}")
        print(f"{'':12} {sum(step.seconds for step in steps.STEPS):4} s")
        return 0
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # a canceled job, as Ctrl-C
    return run(args.out.resolve(), args.simulated, args.steps or names, args.stretch)


def run(folder: Path, simulated: bool, names: list[str], stretch: int = 1) -> int:
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    report = Report(folder, simulated)
    report.found["stretch"] = stretch
    report.write()
    environment = environment_of(simulated)
    jobs = max(1, min(_MOST_JOBS, (os.cpu_count() or 2) // 2))
    machine = steps.Machine(folder, simulated, stretch)
    good = True
    try:
        for step in steps.STEPS:
            if step.name in names:
                print(f"\n== {step.name}: {step.about} ({step.seconds} s at most)", flush=True)
                status = run_step(step, machine, environment, report, jobs)
                over = status == items.TIMED_OUT and not step.may_end
                good &= status != items.FAILED and not over
        report.found["finished"] = True
    finally:  # also of what Ctrl-C ends
        report.write()
        for line in page.summary(report.found):
            print(line)
    print(f"\nSend {folder}/first_mac.json; {folder}/first_mac.md says where.")
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
