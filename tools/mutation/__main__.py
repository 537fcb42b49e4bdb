"""For writers of tests: plants defects that a test must see; found parts of keys that none saw.

    python tools mutation [--metal] [--pinned] [--draw N] [--seed SEED] [--part K/N ...] [NAME ...]
    python tools mutation [--metal] --list [NAME ...]

The defects are those of operators.py at all of their places in the files of targets.py, and of
pinned.py: in the CPU kernels, the patching code and the layers or, with --metal, in the Metal
kernels and their plans, which run on the software device (tools/hostmetal). Without a NAME, which
is that of a defect or how some begin, an operator's places in one function count as one, of which
SEED chooses; --pinned leaves operators out, --draw N plants N of all, --part 1/3 every third, to
share the work. Prints a line per mutant and exits with 1 if one survives. A test that has failed
must pass without any defect.
"""

import argparse
import random
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from pathlib import Path
from typing import NamedTuple

from hostmetal.build import HostBuild
from mlx_norms import _ext
from parts import ALL, part
from support.variant import ROOT, Variant

from .mutant import Mutant, Operated
from .pinned import METAL_MUTANTS, MUTANTS
from .targets import all_sites

# The limit for a defect that makes a test run forever. Processes of the tests have less; the tests
# pass under the same limits without a defect.
TIMEOUT_SECONDS = 900
HANG_SECONDS = 120

# The optimizer does not matter to a defect, and without it the build is several times as fast.
QUICKLY_BUILT = "-DCMAKE_CXX_FLAGS_RELEASE=-O0 -DNDEBUG"
ONE_LEVEL = "-DMLX_NORMS_CPU_LEVELS=baseline"
ALL_LEVELS = "-DMLX_NORMS_CPU_LEVELS="
COPIED = ("CMakeLists.txt", "pyproject.toml", "csrc", "kernels", "mlx_norms")
ON_METAL = ["-p", "hostmetal.plugin", "--backend", "metal-sim"]
# What the device's compiler says of a kernel that is none.
NO_KERNEL = re.compile(r":\d+:\d+: error: ")


class Verdict(NamedTuple):
    """How the tests ended.

    Attributes:
        how: What went wrong, or "".
        test: The test that failed or was running, or "".
        compiled: Whether there was a kernel to test.
    """

    how: str
    test: str
    compiled: bool = True


def verdict(variant: Variant, tests: str, options: list[str]) -> Verdict:
    """Runs the tests up to the first that fails.

    Raises:
        RuntimeError: If pytest could not run the tests.
    """
    arguments = ["-x", "-v", "--tb=short", "-m", "not build", *options, *tests.split()]
    variables = {"METALSIM_CHECK": "2", "MLX_NORMS_HANG_SECONDS": str(HANG_SECONDS)}
    limits = {"capture_output": True, "timeout": TIMEOUT_SECONDS}
    try:
        done = variant.pytest(*arguments, variables=variables, **limits)
        output, status = done.stdout.decode(errors="replace"), done.returncode
    except subprocess.TimeoutExpired as expired:
        output, status = (expired.stdout or b"").decode(errors="replace"), None
    running = re.findall(
        r"^((?:tests|tools)/\S+\.py::.*?)(?: (?:PASSED|SKIPPED).*)?$", output, re.M
    )
    last = running[-1].strip() if running else ""
    if status == 0:
        return Verdict("", "")
    if status is None:
        return Verdict("a test that does not end", last)
    if status < 0:
        return Verdict(f"a crash, {signal.Signals(-status).name}", last)
    if status != 1:
        raise RuntimeError(output + done.stderr.decode(errors="replace"))
    test = re.search(r"^(?:FAILED|ERROR) (.*?)(?: - .*)?$", output, re.M)[1]
    return Verdict(test, test, compiled=not NO_KERNEL.search(output))


class Source:
    """A copy of the source tree to plant defects in."""

    def __init__(self, directory: Path):
        self.root = directory
        directory.mkdir()
        for name in COPIED:
            copy = shutil.copytree if (ROOT / name).is_dir() else shutil.copy
            copy(ROOT / name, directory / name)

    def plant(self, mutant: Mutant | Operated) -> None:
        (self.root / mutant.file).write_text(mutant.planted())

    def restore(self, mutant: Mutant | Operated) -> None:
        shutil.copyfile(ROOT / mutant.file, self.root / mutant.file)


def one_of_each(mutants: list[Operated], seed: str) -> list[Operated]:
    """One of those of an operator in a function."""
    of = defaultdict(list)
    for mutant in mutants:
        of[mutant.name.rpartition(":")[0]].append(mutant)
    return [random.Random(f"{seed} {key}").choice(each) for key, each in of.items()]


def chosen(args: argparse.Namespace) -> list[Mutant | Operated]:
    """The mutants that the command line asks for, in the order of a draw."""
    pinned = METAL_MUTANTS if args.metal else MUTANTS
    operated = [Operated(site, tests) for site, tests in all_sites(args.metal)]
    if args.names:
        every = [*pinned, *operated]
        for name in args.names:
            if not any(m.name.startswith(name) for m in every):
                raise SystemExit(f"no mutant is called {name}")
        return [m for m in every if m.name.startswith(tuple(args.names))]
    every = [*pinned] if args.pinned else [*pinned, *one_of_each(operated, args.seed)]
    if args.draw:
        random.Random(args.seed).shuffle(every)
    return [m for each in args.part or [ALL] for m in each.of(every)]


class Run:
    """Plants mutants in a build, and counts what became of them."""

    def __init__(self, variant: Variant, source: Source, options: list[str]):
        self.variant, self.source, self.options = variant, source, options
        self.survivors: list[str] = []
        self.killers: dict[str, list[str]] = defaultdict(list)  # names by the test
        self.planted = 0

    def plant(self, mutant: Mutant | Operated) -> None:
        start = time.monotonic()
        self.source.plant(mutant)
        try:
            try:
                self.variant.compile()
                of = verdict(self.variant, mutant.tests, self.options)
            except RuntimeError as error:
                if not re.search(r"error: |ninja: build stopped", str(error)):
                    raise
                of = Verdict("", "", compiled=False)
        finally:
            self.source.restore(mutant)
        said = f"caught by {of.how}" if of.how else "SURVIVES"
        if not of.compiled:
            said = "does not compile"
        else:
            self.planted += 1
            if of.test:
                self.killers[of.test].append(mutant.name)
            if not of.how:
                self.survivors.append(mutant.name)
        print(f"{mutant.name:50} {said}  ({time.monotonic() - start:.0f} s)", flush=True)

    def check_killers(self) -> None:
        """Those that a test has caught which fails without a defect, too, survive."""
        if not self.killers:
            return
        self.variant.compile()
        for test, names in self.killers.items():
            if failed := verdict(self.variant, "", [*self.options, "-m", "", test]).how:
                print(f"{failed} fails without any defect")
                self.survivors += names


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("names", nargs="*", metavar="NAME", help="a defect, or how some begin")
    parser.add_argument("--metal", action="store_true", help="those in the Metal kernels")
    parser.add_argument("--pinned", action="store_true", help="only those of pinned.py")
    parser.add_argument("--list", action="store_true", help="print them, and plant none")
    parser.add_argument("--draw", type=int, metavar="N", help="plant N that compile, drawn by SEED")
    parser.add_argument("--seed", default="0", help="what decides a draw; 0 by default")
    parser.add_argument(
        "--part", type=part, action="append", metavar="K/N", help="every Nth from the Kth on"
    )
    args = parser.parse_args()
    if args.list:
        lines = [f"{m.name}: {m.file}" for m in (METAL_MUTANTS if args.metal else MUTANTS)]
        lines += [f"{s.name}: {' '.join(s.new.split())}" for s, _ in all_sites(args.metal)]
        named = tuple(args.names or [""])
        print(*(line for line in lines if line.startswith(named)), sep="\n")
        return 0
    mutants = []
    for mutant in chosen(args):
        if mutant.isa in _ext.cpu_isas():
            mutants.append(mutant)
        else:
            print(f"{mutant.name:50} NOT RUN: this machine has no {mutant.isa}")
    if args.draw:  # with some to spare for those that do not compile
        mutants = mutants[: 3 * args.draw]
    survivors, planted = [], 0
    with tempfile.TemporaryDirectory() as directory:
        source = Source(Path(directory, "source"))
        for levels, some in ((ONE_LEVEL, False), (ALL_LEVELS, True)):
            group = [mutant for mutant in mutants if mutant.at_levels == some]
            if not group or args.draw and planted >= args.draw:
                continue
            if args.metal:
                variant = HostBuild(Path(directory), source.root)
            else:
                variant = Variant(Path(directory), source.root, (QUICKLY_BUILT, levels))
            variant.compile()
            run = Run(variant, source, ON_METAL if args.metal else [])
            for mutant in group:
                if args.draw and planted + run.planted >= args.draw:
                    break
                run.plant(mutant)
            run.check_killers()
            survivors += run.survivors
            planted += run.planted
    print(f"{planted - len(survivors)} of {planted} mutants caught")
    return 1 if survivors else 0


if __name__ == "__main__":
    sys.exit(main())
