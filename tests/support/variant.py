"""Builds a variant of the extension apart from the installed one, and runs tests against it."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
# Where Python finds what tests and tools share, as pyproject.toml tells pytest.
PATHS = [ROOT / name for name in ("tests", "tools", "tools/metalsim", "bench", "kernels")]


def environment(*folders: Path, **variables: str) -> dict[str, str]:
    """The variables for a process whose Python searches these folders, then the shared ones."""
    kept = [path for path in os.environ.get("PYTHONPATH", "").split(os.pathsep) if path]
    path = dict.fromkeys([*map(str, folders), *map(str, PATHS), *kept])
    return os.environ | {"PYTHONPATH": os.pathsep.join(path), **variables}


class Staged:
    """A package that was built and installed into a folder of its own.

    Args:
        site: The folder to put on Python's path.
    """

    def __init__(self, site: Path):
        self.site = site
        self.package = site / "mlx_norms"

    def python(self, *arguments: str, variables: dict[str, str] | None = None, **options):
        """Runs Python with the staged package instead of an installed one."""
        under_test = {"MLX_NORMS_UNDER_TEST": str(self.package)}
        env = environment(self.site, **under_test, **(variables or {}))
        # -P keeps the working directory, which has the package's sources, off Python's path.
        return subprocess.run([sys.executable, "-P", *arguments], cwd=ROOT, env=env, **options)

    def pytest(self, *arguments: str, **options):
        """Runs pytest against the staged package; conftest.py checks that it is the one in use."""
        return self.python("-m", "pytest", "-p", "no:cacheprovider", *arguments, **options)


class Variant(Staged):
    """A staged build of `source` with these CMake options.

    Args:
        directory: The folder for build files and the staged package, which the next build reuses.
        source: The root of the source tree.
        options: CMake options, as "-DNAME=VALUE".
    """

    def __init__(self, directory: Path, source: Path = ROOT, options: tuple[str, ...] = ()):
        super().__init__(directory / "site")
        self.build = directory / "build"
        self.source = source
        command = ["cmake", "-S", source, "-B", self.build, "-GNinja"]
        command += [f"-DPython_EXECUTABLE={sys.executable}", *options]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)

    def compile(self) -> None:
        """Builds the extension and stages it, with the Python sources as they are now.

        Raises:
            RuntimeError: If it does not build; the text is the compiler's output.
        """
        command = ["cmake", "--build", self.build, "--target", "_ext"]
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode != 0:
            raise RuntimeError(done.stdout + done.stderr)
        shutil.copytree(self.source / "mlx_norms", self.package, dirs_exist_ok=True)
        for folder in self.build.glob("_mlx_*"):
            shutil.copytree(folder, self.package / folder.name, dirs_exist_ok=True)
