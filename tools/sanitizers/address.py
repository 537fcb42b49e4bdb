"""For who changes C++: the suite with AddressSanitizer and UBSan; holds it free of reports.

    python tools sanitizers.address [--part K/N] [pytest arguments]

Many rows only run where they are short. Left out are tests that build extensions of their own, test
commands, pages or the tools, end MLX's own process, count allocations, or run all models of mlx_lm,
whose graphs other tests have smaller. With --part, every Nth of the other files, from the Kth on,
and the kernels of the CPU for one instruction set besides the baseline.
"""

import argparse
import os
import subprocess
import sys
import tempfile
from pathlib import Path

from parts import ALL, Part, part
from sanitizers.threads import LEVELS
from support.variant import ROOT, Variant

OTHERS = ("tests/bench/", "tests/build/", "tests/cli/", "tests/docs/")
# It counts allocations by a library of its own, which is loaded in place of the sanitizer's.
COUNTED = ("tests/norm/test_allocations.py",)
MODELS = tuple(f"tests/patching/test_{name}.py" for name in ("models", "deep_graphs", "generation"))
# By a stack overflow in MLX, and by its sums in shapeless graphs, one of them planted.
ENDED_BY_MLX = (
    "test_a_tree_in_itself_ends_as_of_stock or test_sizes_find_what_is_planted"
    " or (test_nothing_fails and shapeless)"
)


def runtime() -> str:
    """AddressSanitizer and, for it to see exceptions, the C++ library: loaded before Python."""
    libraries = []
    for name in ("libasan.so", "libstdc++.so.6"):
        command = ["c++", f"-print-file-name={name}"]
        path = subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()
        if not Path(path).is_absolute():
            raise SystemExit(f"the compiler c++ has no {name}")
        libraries.append(path)
    return " ".join(libraries)


def suite(part: Part) -> list[str]:
    """The files that run."""
    files = sorted(str(path.relative_to(ROOT)) for path in ROOT.glob("tests/**/test_*.py"))
    return part.of([file for file in files if not file.startswith(OTHERS + COUNTED + MODELS)])


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--part", type=part, default=ALL, metavar="K/N")
    args, given = parser.parse_known_args()
    with tempfile.TemporaryDirectory() as directory:
        options = ["-DMLX_NORMS_SANITIZE=ON"]
        if args.part != ALL and os.uname().machine == "x86_64":
            others = [level for level in LEVELS if level != "baseline"]
            level = others[args.part.number % len(others)]
            options.append(f"-DMLX_NORMS_CPU_LEVELS=baseline;{level}")
        variant = Variant(Path(directory), options=tuple(options))
        variant.compile()
        variables = {
            "LD_PRELOAD": runtime(),
            # Python itself leaks at exit; GCC 13's stack for uses after a return is not aligned for
            # AVX-512. Reports go to a file: pytest would swallow them.
            "ASAN_OPTIONS": "detect_leaks=0:abort_on_error=1:detect_stack_use_after_return=0"
            f":log_path={directory}/report",
            "UBSAN_OPTIONS": f"print_stacktrace=1:halt_on_error=1:log_path={directory}/report",
            # glibc's allocator, so that ASan sees Python's buffers too.
            "PYTHONMALLOC": "malloc",
        }
        arguments = given or [
            *("-n", "2", "--dist", "worksteal", "-q", "--slow"),
            *("-k", f"not ({ENDED_BY_MLX})", *suite(args.part)),
        ]
        done = variant.pytest(*arguments, variables=variables)
        reports = list(Path(directory).glob("report*"))
        for report in reports:
            print(report.read_text())
        return 1 if reports else done.returncode


if __name__ == "__main__":
    sys.exit(main())
