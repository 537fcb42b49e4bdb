"""Runs the test suite on the software Metal device.

    python tests/hostmetal/run.py [check:order ...] [-- pytest arguments]

A schedule is metalsim's check level and order; the suite runs once in each.
"""

import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))

from hostmetal.build import HostBuild  # noqa: E402

SCHEDULES = ("2:0", "1:1", "1:2")


def main(arguments: list[str]) -> int:
    split = arguments.index("--") if "--" in arguments else len(arguments)
    schedules = arguments[:split] or SCHEDULES
    pytest_arguments = arguments[split + 1 :] or ["-n", "2", "-q"]
    build = HostBuild()
    build.compile()
    failed = 0
    for schedule in schedules:
        check, order = schedule.split(":")
        started = time.monotonic()
        done = build.pytest(
            "-p",
            "hostmetal.plugin",
            "--backend",
            "metal-sim",
            *pytest_arguments,
            environment={"METALSIM_CHECK": check, "METALSIM_ORDER": order},
        )
        print(f"check {check}, order {order}: {time.monotonic() - started:.0f} s", flush=True)
        failed += done.returncode != 0
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
