"""Runs the test suite on the software Metal device.

    python tools hostmetal [--eighth 0|...|7] [check:order ...] [-- pytest arguments]

A schedule is metalsim's check level and order of threads. The suite runs once per schedule, except
that tests of graphs only run in the first, since they launch kernels that other tests cover. With
--eighth, the first schedule runs a quarter of the files, and each later one an eighth of the
others; the next eighth, the next ones.
"""

import argparse
import sys
import time

from support.variant import ROOT

from .build import HostBuild

SCHEDULES = ("2:0", "1:1", "1:2")
GRAPHS = "tests/patching/"


def suite(schedule: int, eighth: int | None) -> list[str]:
    """The files that run in a schedule, given its index among all schedules."""
    if schedule == 0 and eighth is None:
        return ["tests"]
    files = sorted(str(path.relative_to(ROOT)) for path in ROOT.glob("tests/**/test_*.py"))
    if schedule == 0:
        return files[eighth % 4 :: 4]
    files = [file for file in files if not file.startswith(GRAPHS)]
    return files if eighth is None else files[(eighth + schedule) % 8 :: 8]


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--eighth", type=int, choices=range(8))
    parser.add_argument("schedules", nargs="*", metavar="check:order", default=SCHEDULES)
    split = arguments.index("--") if "--" in arguments else len(arguments)
    args, given = parser.parse_args(arguments[:split]), arguments[split + 1 :]
    build = HostBuild()
    build.compile()
    failed = 0
    for i, schedule in enumerate(args.schedules):
        check, order = schedule.split(":")
        started = time.monotonic()
        done = build.pytest(
            *("-p", "hostmetal.plugin", "--backend", "metal-sim"),
            *(given or ["-n", "2", "--dist", "worksteal", "-q", *suite(i, args.eighth)]),
            variables={"METALSIM_CHECK": check, "METALSIM_ORDER": order},
        )
        print(f"check {check}, order {order}: {time.monotonic() - started:.0f} s", flush=True)
        failed += done.returncode != 0
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
