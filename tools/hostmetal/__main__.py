"""For those without a Mac: the suite on a Metal device in software; found an IndexError, races.

    python tools hostmetal [--part K/N] [check:order[:error] ...] [-- pytest arguments]

A schedule is metalsim's check level and order of threads, and how far metal::fast is off, in what
Metal permits. The suite runs once per schedule, except
that tests of graphs only run in the first, since they launch kernels that other tests cover. With
--part, the first schedule runs every Nth file, from the Kth on, and each later one those after.
"""

import argparse
import sys
import time

from parts import ALL, Part, part
from support.variant import ROOT

from .build import HostBuild

SCHEDULES = ("2:0", "1:1:1", "1:2:1")
GRAPHS = "tests/patching/"


def suite(schedule: int, part: Part) -> list[str]:
    """The files that run in a schedule, given its index among all schedules."""
    files = sorted(str(path.relative_to(ROOT)) for path in ROOT.glob("tests/**/test_*.py"))
    if schedule > 0:
        files = [file for file in files if not file.startswith(GRAPHS)]
    return Part((part.number - 1 + schedule) % part.count + 1, part.count).of(files)


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--part", type=part, default=ALL, metavar="K/N")
    parser.add_argument("schedules", nargs="*", metavar="check:order[:error]", default=SCHEDULES)
    split = arguments.index("--") if "--" in arguments else len(arguments)
    args, given = parser.parse_args(arguments[:split]), arguments[split + 1 :]
    build = HostBuild()
    print(f"Builds in {build.build.relative_to(ROOT)}: minutes at first, then seconds.", flush=True)
    build.compile()
    failed = 0
    for i, schedule in enumerate(args.schedules):
        names = ("METALSIM_CHECK", "METALSIM_ORDER", "METALSIM_FAST_ERROR")
        of = dict(zip(names, (*schedule.split(":"), "0")))
        started = time.monotonic()
        done = build.pytest(
            *("-p", "hostmetal.plugin", "--backend", "metal-sim"),
            *(given or ["-n", "2", "--dist", "worksteal", "-q", *suite(i, args.part)]),
            variables=of,
        )
        print(f"schedule {schedule}: {time.monotonic() - started:.0f} s", flush=True)
        failed += done.returncode != 0
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
