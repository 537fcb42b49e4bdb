"""Builds a variant of the extension beside the installed one and runs tests against it."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent


class Variant:
    """A build of `source` with these CMake options, staged as a package of its own.

    Args:
        directory: Where build files and the staged package go; reused by the next build there.
        source: The root of the source tree.
        options: CMake options, as "-DNAME=VALUE".
    """

    def __init__(self, directory: Path, source: Path = ROOT, options: tuple[str, ...] = ()):
        self.build = directory / "build"
        self.site = directory / "site"
        self.package = self.site / "mlx_norms"
        shutil.copytree(source / "mlx_norms", self.package, dirs_exist_ok=True)
        command = ["cmake", "-S", source, "-B", self.build, "-GNinja"]
        command += [f"-DPython_EXECUTABLE={sys.executable}", *options]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)

    def compile(self) -> None:
        """Builds the extension and stages it.

        Raises:
            RuntimeError: If it does not build; the text is the compiler's.
        """
        command = ["cmake", "--build", self.build, "--target", "_ext"]
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode != 0:
            raise RuntimeError(done.stdout + done.stderr)
        for file in [*self.build.glob("_ext*.so"), self.build / "_built.py"]:
            shutil.copy(file, self.package)

    def pytest(self, *arguments: str, environment: dict[str, str] | None = None, **options):
        """Runs pytest against the staged package, which conftest.py makes sure is the one used."""
        env = os.environ | {
            "PYTHONPATH": str(self.site),
            "MLX_NORMS_UNDER_TEST": str(self.package),
            **(environment or {}),
        }
        command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", *arguments]
        return subprocess.run(command, cwd=ROOT / "tests", env=env, **options)
