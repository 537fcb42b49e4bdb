"""For those with an NVIDIA GPU: kernels under compute-sanitizer; found reads beyond short rows.

    python tools sanitizers.cuda [--tool NAME] [--processes N]

memcheck, racecheck, initcheck and synccheck at the same time, each in several processes, which
share the cases. The exit status is 1 if one of them reports something of our kernels, or did not
get to the end. What it reports of MLX's own kernels, or of calls of CUDA, is counted.
"""

import argparse
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from sanitizers import parts

TOOLS = ("memcheck", "racecheck", "initcheck", "synccheck")
CASES = Path(__file__).with_name("cuda_cases.py")
SECONDS = 580
MOST_PROCESSES = 8  # of a tool, by default: all share a GPU and its memory
MOST_REPORTS = 10000
# MLX copies whole buffers, of which it may have written a part.
OPTIONS = {"initcheck": ("--check-api-memory-access", "no")}
SHOWN = 3  # reports of ours, and lines of each
LINES = 12

# All that are defined, by the names of their functions.
KERNEL_TEXTS = Path(__file__).parents[2] / "kernels"
DEFINED = re.compile(r"\[\[kernel\b[^\]]*\]\]\s*void\s+(\w+)\s*\(")
KERNELS = sorted(
    name
    for ending in ("h", "metal")
    for path in KERNEL_TEXTS.glob(f"**/*.{ending}")
    for name in DEFINED.findall(path.read_text())
)
# As in "at norm<(int)8, (int)4>(...)+0x120", or in the symbol _Z4normILi8ELi4EE...
NAMES = re.compile(
    "|".join(
        rf"(?<![\w:]){kernel}\s*[<(]|_Z{len(kernel)}{kernel}(?=I|P|v|\b)" for kernel in KERNELS
    )
)
KERNEL = re.compile(r"(?:at|in) (?:void )?([\w:]+)\s*[<(]")


@dataclass
class Process:
    """What one of a tool's processes left."""

    status: int
    seconds: float
    log: str

    @property
    def finished(self):
        # Past so many reports, ours are not shown either.
        whole = len(reports(self.log)) < MOST_REPORTS and "SUMMARY:" in self.log
        return whole and self.status == 0 and parts.is_complete(self.log)


@dataclass
class Outcome:
    tool: str
    processes: list[Process]

    @property
    def reports(self):
        return [report for process in self.processes for report in reports(process.log)]

    @property
    def ours(self):
        return [report for report in self.reports if names_our_kernel(report)]

    @property
    def others(self):
        return [report for report in self.reports if not names_our_kernel(report)]

    @property
    def failures(self):
        """Why it does not say of each case whether there is something to report."""
        count = len(self.processes)
        unfinished = [i for i, process in enumerate(self.processes) if not process.finished]
        if unfinished:
            return [f"process {i} of {count} did NOT get to the end" for i in unfinished]
        wrong = parts.not_once(process.log for process in self.processes)
        return [f"cases {wrong} did not run exactly once"] if wrong else []


def names_our_kernel(report):
    return any(NAMES.search(line) for line in report.splitlines() if "Host Frame" not in line)


def reports(log):
    """What was reported, one text each: a line, and those indented after it."""
    found = []
    for line in log.splitlines():
        if not line.startswith("========="):
            continue
        text = line.removeprefix("=========")
        if not text.strip():
            continue
        if not text.startswith("  ") and not is_about_the_run(text.strip()):
            found.append(text.strip())
        elif text.startswith("  ") and found:
            found[-1] += "\n" + text.rstrip()
    return found


def is_about_the_run(line):
    return (
        line == "COMPUTE-SANITIZER" or "SUMMARY:" in line or line.startswith("Target application")
    )


def run(tool, part, count):
    """One of the processes that share a tool's cases."""
    program = shutil.which("compute-sanitizer") or "/usr/local/cuda/bin/compute-sanitizer"
    command = [program, "--tool", tool, "--print-limit", str(MOST_REPORTS)]
    # -P, as this folder has a parts.py, too.
    command += [*OPTIONS.get(tool, ()), sys.executable, "-P", str(CASES)]
    command += ["--part", f"{part + 1}/{count}"]
    start = time.monotonic()
    # Merged, as the tools write to either. In a session of its own, so that the program that a tool
    # runs can be ended, too.
    options = dict(stderr=subprocess.STDOUT, text=True, errors="replace", start_new_session=True)
    options["env"] = os.environ | {"MLX_NORMS_SELF_CHECK": "0"}
    with subprocess.Popen(command, stdout=subprocess.PIPE, **options) as process:
        try:
            log, _ = process.communicate(timeout=SECONDS)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            log = process.communicate()[0] + f"\nstopped after {SECONDS} s"
    return Process(process.returncode, time.monotonic() - start, log)


def run_all(tools, count):
    """The outcomes of these tools, each of so many processes; all run at the same time."""
    with ThreadPoolExecutor(len(tools) * count) as threads:
        started = {
            tool: [threads.submit(run, tool, part, count) for part in range(count)]
            for tool in tools
        }
        return [Outcome(tool, [each.result() for each in of]) for tool, of in started.items()]


def show(outcome):
    ours, others = outcome.ours, outcome.others
    seconds = max(process.seconds for process in outcome.processes)
    told = [f"{len(ours)} of our kernels", f"{len(others)} others", f"{seconds:.0f} s"]
    print(f"{outcome.tool}: {', '.join(told + outcome.failures)}")
    for report in ours[:SHOWN]:
        print("\n".join(report.splitlines()[:LINES]), end="\n\n")
    for name, count in counts(others).items():
        print(f"  others: {count} times {name}")
    for part, process in enumerate(outcome.processes):
        if not process.finished:
            print(f"process {part} of {outcome.tool}:")
            print("\n".join(process.log.splitlines()[-25:]))


def counts(others):
    """Of MLX's kernels by name, and of what names no kernel by its first line."""
    found = {}
    for report in others:
        kernel = KERNEL.search(report)
        name = kernel.group(1) if kernel else report.splitlines()[0]
        found[name] = found.get(name, 0) + 1
    return found


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tool", choices=TOOLS, action="append", help="one of the tools")
    parser.add_argument("--logs", type=Path, metavar="DIRECTORY", help="keep what the tools wrote")
    parser.add_argument(
        "--processes", type=int, help="of each tool; by default, as many as have a core each"
    )
    args = parser.parse_args()
    tools = list(dict.fromkeys(args.tool or TOOLS))
    if args.processes is not None and args.processes < 1:
        parser.error(f"--processes must be at least 1, got {args.processes}")
    a_core_each = max(1, min(MOST_PROCESSES, os.cpu_count() // len(tools)))
    outcomes = run_all(tools, args.processes or a_core_each)
    for outcome in outcomes:
        show(outcome)
        if args.logs:
            args.logs.mkdir(parents=True, exist_ok=True)
            for part, process in enumerate(outcome.processes):
                (args.logs / f"{outcome.tool}_{part}.log").write_text(process.log)
    return int(any(outcome.ours or outcome.failures for outcome in outcomes))


if __name__ == "__main__":
    sys.exit(main())
