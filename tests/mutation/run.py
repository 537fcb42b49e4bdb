"""Plants each defect of mutants.py in the kernels, builds them and expects the suite to fail.

    python tests/mutation/run.py [NAME ...]

Prints a line a mutant and exits with 1 if one survives. The chosen tests must first pass without
any defect, so that a failure means the defect was seen.
"""

import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from mutants import MUTANTS, Mutant

sys.path.insert(0, str(Path(__file__).parent.parent))
from variant import ROOT, Variant  # noqa: E402


def run_tests(variant: Variant, tests: str) -> subprocess.CompletedProcess:
    return variant.pytest("-x", "-q", *tests.split(), capture_output=True, text=True)


def killer(done: subprocess.CompletedProcess) -> str | None:
    """The test that failed; None if all passed.

    Raises:
        RuntimeError: If pytest did something else than run tests.
    """
    if done.returncode not in (0, 1):
        raise RuntimeError(done.stdout + done.stderr)
    failed = [line for line in done.stdout.splitlines() if line.startswith("FAILED")]
    return failed[0].split()[1] if failed else None


class Source:
    """A copy of the source tree to plant defects in."""

    def __init__(self, directory: Path):
        self.root = directory
        directory.mkdir()
        for name in ("CMakeLists.txt", "pyproject.toml", "csrc", "mlx_norms"):
            copy = shutil.copytree if (ROOT / name).is_dir() else shutil.copy
            copy(ROOT / name, directory / name)

    def plant(self, mutant: Mutant) -> None:
        text = (ROOT / mutant.file).read_text()
        if text.count(mutant.old) != 1:
            raise ValueError(
                f"{mutant.name}: {mutant.old!r} occurs {text.count(mutant.old)} times in "
                f"{mutant.file}, not once"
            )
        (self.root / mutant.file).write_text(text.replace(mutant.old, mutant.new))

    def restore(self, mutant: Mutant) -> None:
        shutil.copyfile(ROOT / mutant.file, self.root / mutant.file)


def main(names: list[str]) -> int:
    mutants = [m for m in MUTANTS if not names or m.name in names]
    unknown = set(names) - {m.name for m in mutants}
    if unknown or not mutants:
        raise SystemExit(f"no mutant is called {', '.join(sorted(unknown))}")
    survivors = []
    with tempfile.TemporaryDirectory() as directory:
        source = Source(Path(directory, "source"))
        variant = Variant(Path(directory), source.root)
        variant.compile()
        for tests in sorted({m.tests for m in mutants}):
            if failed := killer(run_tests(variant, tests)):
                raise SystemExit(f"{failed} fails without any defect")
        for mutant in mutants:
            start = time.monotonic()
            source.plant(mutant)
            variant.compile()
            failed = killer(run_tests(variant, mutant.tests))
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
