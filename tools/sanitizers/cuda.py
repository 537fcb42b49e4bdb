"""Runs the kernels' cases under compute-sanitizer, on a machine with an NVIDIA GPU.

    python tools sanitizers.cuda [--tool NAME]

memcheck, racecheck, initcheck and synccheck, one process each, at the same time. The exit status
is 1 if one of them reports something of our kernels, or did not get to the end. What it reports of
MLX's own kernels, or of calls of CUDA, is counted.
"""

import argparse
import os
import re
import shutil
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

TOOLS = ("memcheck", "racecheck", "initcheck", "synccheck")
CASES = Path(__file__).with_name("cuda_cases.py")
SECONDS = 580
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
class Outcome:
    tool: str
    reports: list[str]
    finished: bool
    seconds: float
    log: str

    @property
    def ours(self):
        return [report for report in self.reports if names_our_kernel(report)]

    @property
    def others(self):
        return [report for report in self.reports if not names_our_kernel(report)]


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


def run(tool):
    program = shutil.which("compute-sanitizer") or "/usr/local/cuda/bin/compute-sanitizer"
    command = [program, "--tool", tool, "--print-limit", str(MOST_REPORTS)]
    command += [*OPTIONS.get(tool, ()), sys.executable, str(CASES)]
    start = time.monotonic()
    # Merged, as the tools write to either.
    merged = dict(stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace")
    environment = os.environ | {"MLX_NORMS_SELF_CHECK": "0"}
    with subprocess.Popen(command, env=environment, **merged) as process:
        try:
            log, _ = process.communicate(timeout=SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            log = process.communicate()[0] + f"\nstopped after {SECONDS} s"
    finished = process.returncode == 0 and " cases ran" in log and "SUMMARY:" in log
    found = reports(log)
    finished &= len(found) < MOST_REPORTS  # past them, ours are not shown either
    return Outcome(tool, found, finished, time.monotonic() - start, log)


def show(outcome):
    ours, others = outcome.ours, outcome.others
    end = "" if outcome.finished else ", and did NOT get to the end"
    print(
        f"{outcome.tool}: {len(ours)} of our kernels, {len(others)} others, "
        f"{outcome.seconds:.0f} s{end}"
    )
    for report in ours[:SHOWN]:
        print("\n".join(report.splitlines()[:LINES]), end="\n\n")
    for name, count in counts(others).items():
        print(f"  others: {count} times {name}")
    if not outcome.finished:
        print("\n".join(outcome.log.splitlines()[-25:]))


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
    args = parser.parse_args()
    with ThreadPoolExecutor() as threads:
        outcomes = list(threads.map(run, args.tool or TOOLS))
    for outcome in outcomes:
        show(outcome)
        if args.logs:
            args.logs.mkdir(parents=True, exist_ok=True)
            (args.logs / f"{outcome.tool}.log").write_text(outcome.log)
    return int(any(outcome.ours or not outcome.finished for outcome in outcomes))


if __name__ == "__main__":
    sys.exit(main())
