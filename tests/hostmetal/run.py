"""Runs the test suite on the software Metal device.

    python tests/hostmetal/run.py [check:order ...] [-- pytest arguments]

A schedule is metalsim's check level and order. The suite runs once in each, but for tests of
graphs, which run in the first: they launch the kernels that the others test.
"""

import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))

from hostmetal.build import HostBuild  # noqa: E402

SCHEDULES = ("2:0", "1:1", "1:2")
OF_GRAPHS = ("fuse", "fusion*", "patching*", "models", "generation", "training", "export")


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
        others = [] if schedule == schedules[0] else OF_GRAPHS
        all_of_it = ["-n", "2", "-q", *(f"--ignore-glob=*test_{name}.py" for name in others)]
        done = build.pytest(
            "-p",
            "hostmetal.plugin",
            "--backend",
            "metal-sim",
            *(given or all_of_it),
            environment={"METALSIM_CHECK": check, "METALSIM_ORDER": order},
        )
        print(f"check {check}, order {order}: {time.monotonic() - started:.0f} s", flush=True)
        failed += done.returncode != 0
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
