"""Plants each defect in the kernels, builds them and expects the suite to fail.

    python tools mutation [--metal] [--part K/N ...] [NAME ...]

The defects are those of cpu.py in the CPU kernels and of patching.py in the patching code, or, with
--metal, those of metal/ in the Metal kernels, which run on the software device (tools/hostmetal).
--part 1/3 plants every third defect, from the first on, to share the work. Prints a line per mutant
and exits with 1 if one survives. The chosen tests must first pass without any defect, so that a
failure means that the defect was seen.
"""

import argparse
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from hostmetal.build import HostBuild
from mlx_norms import _ext
from parts import ALL, part
from support.variant import ROOT, Variant

from .cpu import MUTANTS
from .metal import METAL_MUTANTS
from .mutant import Mutant
from .patching import PATCHING_MUTANTS

# The limit for a defect that makes a test run forever. Processes of the tests have less; the tests
# pass under the same limits without a defect.
TIMEOUT_SECONDS = 600
HANG_SECONDS = 120


# The optimizer does not matter to a defect, and without it the build is several times as fast.
QUICKLY_BUILT = "-DCMAKE_CXX_FLAGS_RELEASE=-O0 -DNDEBUG"
ONE_LEVEL = "-DMLX_NORMS_CPU_LEVELS=baseline"
ALL_LEVELS = "-DMLX_NORMS_CPU_LEVELS="
COPIED = ("CMakeLists.txt", "pyproject.toml", "csrc", "kernels", "mlx_norms", "tools/metalsim")
ON_METAL = ["-p", "hostmetal.plugin", "--backend", "metal-sim"]


def killer(variant: Variant, tests: str, options: list[str]) -> str | None:
    """The test that failed, or how the tests ended otherwise; None if all passed.

    Raises:
        RuntimeError: If pytest could not run the tests.
    """
    arguments = ["-x", "-q", *options, *tests.split()]
    try:
        done = variant.pytest(
            *arguments,
            variables={"METALSIM_CHECK": "2", "MLX_NORMS_HANG_SECONDS": str(HANG_SECONDS)},
            capture_output=True,
            text=True,
            timeout=TIMEOUT_SECONDS,
        )
    except subprocess.TimeoutExpired:
        return "a test that does not end"
    if done.returncode == 0:
        return None
    if done.returncode < 0:
        return f"a crash, {signal.Signals(-done.returncode).name}"
    if done.returncode != 1:
        raise RuntimeError(done.stdout + done.stderr)
    lines = done.stdout.splitlines()
    return next(line.split()[1] for line in lines if line.startswith(("FAILED", "ERROR ")))


def check(mutant: Mutant) -> None:
    """Raises ValueError if the text to replace does not occur exactly once in the file."""
    count = (ROOT / mutant.file).read_text().count(mutant.old)
    if count != 1:
        raise ValueError(
            f"{mutant.name}: {mutant.old!r} occurs {count} times in {mutant.file}, not once"
        )


class Source:
    """A copy of the source tree to plant defects in."""

    def __init__(self, directory: Path):
        self.root = directory
        directory.mkdir()
        for name in COPIED:
            copy = shutil.copytree if (ROOT / name).is_dir() else shutil.copy
            copy(ROOT / name, directory / name)

    def plant(self, mutant: Mutant) -> None:
        text = (ROOT / mutant.file).read_text()
        (self.root / mutant.file).write_text(text.replace(mutant.old, mutant.new))

    def restore(self, mutant: Mutant) -> None:
        shutil.copyfile(ROOT / mutant.file, self.root / mutant.file)


def batches(mutants: list[Mutant]) -> list[str]:
    """The mutants' tests in as few pytest runs as possible: one per selection by -k or -m."""
    tests = {m.tests for m in mutants}
    selected = {t for t in tests if " -k " in t or t.startswith("-m ")}
    plain = {name for t in tests - selected for name in t.split()}
    return [" ".join(sorted(plain)), *sorted(selected)] if plain else sorted(selected)


def groups(mutants: list[Mutant]) -> list[tuple[str, list[Mutant]]]:
    """The mutants, grouped by the levels of the CPU kernels that must be built for them."""
    at_one = [m for m in mutants if not m.at_levels]
    at_some = [m for m in mutants if m.at_levels]
    return [group for group in ((ONE_LEVEL, at_one), (ALL_LEVELS, at_some)) if group[1]]


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("names", nargs="*", metavar="NAME", help="a defect; all, if none is named")
    parser.add_argument("--metal", action="store_true", help="those in the Metal kernels")
    parser.add_argument(
        "--part", type=part, action="append", metavar="K/N", help="every Nth from the Kth on"
    )
    args = parser.parse_args()
    all_mutants = METAL_MUTANTS if args.metal else MUTANTS + PATCHING_MUTANTS
    drawn = [m for each in args.part or [ALL] for m in each.of(all_mutants)]
    mutants = [m for m in all_mutants if (m.name in args.names if args.names else m in drawn)]
    unknown = set(args.names) - {m.name for m in mutants}
    if unknown or not mutants:
        raise SystemExit(f"no mutant is called {', '.join(sorted(unknown))}")
    for mutant in all_mutants:
        check(mutant)
    for mutant in mutants:
        if mutant.redundant:
            print(f"{mutant.name:30} redundant: {mutant.redundant}")
        elif mutant.isa not in _ext.cpu_isas():
            print(f"{mutant.name:30} NOT RUN: this machine has no {mutant.isa}")
    mutants = [m for m in mutants if not m.redundant and m.isa in _ext.cpu_isas()]
    options = ON_METAL if args.metal else []
    survivors = []
    with tempfile.TemporaryDirectory() as directory:
        source = Source(Path(directory, "source"))
        for levels, group in groups(mutants):
            if args.metal:
                variant = HostBuild(Path(directory), source.root)
            else:
                variant = Variant(Path(directory), source.root, (QUICKLY_BUILT, levels))
            variant.compile()
            for tests in batches(group):
                if failed := killer(variant, tests, options):
                    raise SystemExit(f"{failed} fails without any defect")
            for mutant in group:
                start = time.monotonic()
                source.plant(mutant)
                variant.compile()
                failed = killer(variant, mutant.tests, options)
                source.restore(mutant)
                seconds = time.monotonic() - start
                verdict = f"caught by {failed}" if failed else "SURVIVES"
                print(f"{mutant.name:30} {verdict}  ({seconds:.0f} s)", flush=True)
                if not failed:
                    survivors.append(mutant.name)
    caught = len(mutants) - len(survivors)
    print(f"{caught} of {len(mutants)} mutants caught")
    return 1 if survivors else 0


if __name__ == "__main__":
    sys.exit(main())
