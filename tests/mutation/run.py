"""Plants each defect in the kernels, builds them and expects the suite to fail.

    python tests/mutation/run.py [--metal] [NAME ...]

The defects are those of mutants.py in the CPU kernels and of patching_mutants.py in what patches
models, or with --metal those of metal_mutants.py in the Metal kernels, which run on the software
device (tests/hostmetal).
Prints a line a mutant and exits with 1 if one survives. The chosen tests must first pass without
any defect, so that a failure means the defect was seen.
"""

import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from metal_mutants import METAL_MUTANTS
from mutants import MUTANTS, Mutant
from patching_mutants import PATCHING_MUTANTS

TIMEOUT_SECONDS = 120

sys.path.insert(0, str(Path(__file__).parent.parent))
from hostmetal.build import HostBuild  # noqa: E402
from variant import ROOT, Variant  # noqa: E402

ON_METAL = ["-p", "hostmetal.plugin", "--backend", "metal-sim"]


def killer(variant: Variant, tests: str, options: list[str]) -> str | None:
    """The test that failed, or the way in which the tests ended; None if all passed.

    Raises:
        RuntimeError: If pytest did something else than run tests.
    """
    arguments = ["-x", "-q", *options, *tests.split()]
    try:
        done = variant.pytest(
            *arguments,
            environment={"METALSIM_CHECK": "2"},
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
    """Raises ValueError if the text to replace is not in the file, or more than once."""
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
        for name in ("CMakeLists.txt", "pyproject.toml", "csrc", "kernels", "mlx_norms"):
            copy = shutil.copytree if (ROOT / name).is_dir() else shutil.copy
            copy(ROOT / name, directory / name)

    def plant(self, mutant: Mutant) -> None:
        text = (ROOT / mutant.file).read_text()
        (self.root / mutant.file).write_text(text.replace(mutant.old, mutant.new))

    def restore(self, mutant: Mutant) -> None:
        shutil.copyfile(ROOT / mutant.file, self.root / mutant.file)


def main(names: list[str]) -> int:
    metal = "--metal" in names
    names = [name for name in names if name != "--metal"]
    all_mutants = METAL_MUTANTS if metal else MUTANTS + PATCHING_MUTANTS
    mutants = [m for m in all_mutants if not names or m.name in names]
    unknown = set(names) - {m.name for m in mutants}
    if unknown or not mutants:
        raise SystemExit(f"no mutant is called {', '.join(sorted(unknown))}")
    for mutant in all_mutants:
        check(mutant)
    for mutant in mutants:
        if mutant.redundant:
            print(f"{mutant.name:30} redundant: {mutant.redundant}")
    mutants = [m for m in mutants if not m.redundant]
    options = ON_METAL if metal else []
    survivors = []
    with tempfile.TemporaryDirectory() as directory:
        source = Source(Path(directory, "source"))
        variant = (HostBuild if metal else Variant)(Path(directory), source.root)
        variant.compile()
        for tests in sorted({m.tests for m in mutants}):
            if failed := killer(variant, tests, options):
                raise SystemExit(f"{failed} fails without any defect")
        for mutant in mutants:
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
    sys.exit(main(sys.argv[1:]))
