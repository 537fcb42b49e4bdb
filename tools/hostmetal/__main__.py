"""Runs the test suite on the software Metal device.

    python tools hostmetal [check:order ...] [-- pytest arguments]

A schedule is metalsim's check level and order. The suite runs once in each, but for tests of
graphs, which run in the first: they launch the kernels that the others test.
"""

import sys
import time

from .build import HostBuild

SCHEDULES = ("2:0", "1:1", "1:2")
SUITE = ["-n", "2", "-q", "tests"]
GRAPHS = "tests/patching"


def main(arguments: list[str]) -> int:
    split = arguments.index("--") if "--" in arguments else len(arguments)
    schedules = arguments[:split] or SCHEDULES
    given = arguments[split + 1 :]
    build = HostBuild()
    build.compile()
    failed = 0
    for schedule in schedules:
        check, order = schedule.split(":")
        started = time.monotonic()
        suite = SUITE if schedule == schedules[0] else [*SUITE, f"--ignore={GRAPHS}"]
        done = build.pytest(
            "-p",
            "hostmetal.plugin",
            "--backend",
            "metal-sim",
            *(given or suite),
            variables={"METALSIM_CHECK": check, "METALSIM_ORDER": order},
        )
        print(f"check {check}, order {order}: {time.monotonic() - started:.0f} s", flush=True)
        failed += done.returncode != 0
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
