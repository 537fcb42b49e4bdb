"""For hostmetal and what runs on it: builds the device, and extensions, and prints their folder.

python tools hostmetal.build prints the folder to put on PYTHONPATH.
"""

import fcntl
import hashlib
import os
import subprocess
import sys
from pathlib import Path

import pytest

from macos import mlx_wheel
from metalsim import address_spaces
from mlx_norms import _built
from support.variant import ROOT, Staged

PROJECT = Path(__file__).parent


class MissingCompiler(RuntimeError):
    """This machine has no clang++."""


def compiler() -> str:
    """The path of a clang++ on this machine.

    Raises:
        MissingCompiler: If there is none.
    """
    if path := address_spaces.compiler():
        return path
    raise MissingCompiler(
        "the software Metal device needs clang++ 16 to 22, as metal-cpp's headers use blocks, and "
        "none is on PATH: apt-get install clang-16"
    )


def _files_of_package(package: Path) -> list[Path]:
    """The package's Python files and data files."""
    return [file for file in package.rglob("*") if file.suffix in (".py", ".json")]


class HostBuild(Staged):
    """The device, and a package mlx_norms that runs on it.

    Args:
        directory: The folder for build files and the staged package, which the next build reuses.
            None: build/hostmetal in the checkout.
        source: The root of the source tree with the extension and its kernels.
        named: Whether functions keep their names, for tools that find them by name.

    Raises:
        MissingCompiler: If the machine has no clang++.
    """

    def __init__(self, directory: Path | None = None, source: Path = ROOT, named: bool = False):
        directory = directory or ROOT / "build" / "hostmetal"
        macos_mlx = mlx_wheel.fetch(mlx=_built.MLX_VERSION)
        self.source = source
        options = [
            f"-DCMAKE_CXX_COMPILER={compiler()}",
            # By one name, since python and python3 would have a folder each.
            f"-DPython_EXECUTABLE={Path(sys.prefix) / 'bin' / 'python3'}",
            f"-DMACOS_MLX={macos_mlx}",
            f"-DMLX_NORMS_SOURCE={source}",
            # nanobind strips release builds.
            *(
                ["-DCMAKE_BUILD_TYPE=Named", "-DCMAKE_CXX_FLAGS_NAMED=-O3 -DNDEBUG"]
                if named
                else []
            ),
        ]
        # CMake cannot change these options once it is configured, so they choose the folder.
        key = hashlib.sha256(" ".join(options).encode()).hexdigest()[:12]
        self.build = directory / key
        super().__init__(self.build / "site")
        self.build.mkdir(parents=True, exist_ok=True)
        with self._lock():
            if not (self.build / "build.ninja").exists():
                _run(["cmake", "-S", PROJECT, "-B", self.build, "-GNinja", *options])

    def compile(self, *targets: str) -> None:
        """Builds the device and these targets, by default the extension, and stages them.

        Raises:
            RuntimeError: If they do not build; the text is the compiler's output.
        """
        targets = targets or ("_ext",)
        with self._lock():
            _run(["cmake", "--build", self.build, "--target", "_hostmetal", *targets])
            for pattern in ("_hostmetal*.so", "_toy*.so"):
                for file in self.build.glob(pattern):
                    _stage(self.site / file.name, file.read_bytes())
            if "_ext" in targets:
                self._stage_package()
            # So that processes started by the tests have a simulator, too.
            paths = [str(PROJECT.parent), str(PROJECT.parent / "metalsim")]
            attach = f"import sys\n\nsys.path += {paths}\n"
            attach += "import hostmetal\n\nhostmetal.start()\n"
            _stage(self.site / "sitecustomize.py", attach.encode())

    def _stage_package(self) -> None:
        for staged in _files_of_package(self.package):
            source = self.source / staged.relative_to(self.site)
            if not staged.parent.name.startswith("_mlx_") and not source.exists():
                staged.unlink()
        for file in _files_of_package(self.source / "mlx_norms"):
            _stage(self.site / file.relative_to(self.source), file.read_bytes())
        for file in self.build.glob("_mlx_*/*.*"):
            _stage(self.package / file.relative_to(self.build), file.read_bytes())

    def _lock(self):
        """Held during a build, since test processes that run in parallel share it."""
        file = open(self.build / "lock", "w")
        fcntl.flock(file, fcntl.LOCK_EX)
        return file


def printed(*arguments: str) -> str:
    """What Python prints where the extension runs on the device, which is built first.

    Raises:
        MissingCompiler: If the machine has no clang++.
        RuntimeError: If it does not build, or Python fails.
    """
    build = HostBuild()
    build.compile()
    # The self-check's launches are not the calls'.
    variables = {"MLX_NORMS_SELF_CHECK": "0"}
    done = build.python(*arguments, variables=variables, capture_output=True, text=True)
    if done.returncode != 0:
        raise RuntimeError(done.stdout + done.stderr)
    return done.stdout


def for_tests(*targets: str) -> Staged:
    """A build with these targets; the test is skipped if there is no clang++.

    The extension is the one under test, if that was built for this device.
    """
    under_test = os.environ.get("MLX_NORMS_UNDER_TEST")
    if targets == ("_ext",) and under_test and "metal-sim" in _built.BACKENDS:
        return Staged(Path(under_test).parent)
    try:
        compiler()
    except MissingCompiler as error:
        pytest.skip(f"instrument missing: {error}")
    build = HostBuild()
    build.compile(*targets)
    return build


def _stage(path: Path, contents: bytes) -> None:
    """Replaces a file's contents atomically, since other processes may be using it."""
    if not path.exists() or path.read_bytes() != contents:
        path.parent.mkdir(parents=True, exist_ok=True)
        new = path.with_name(f".{path.name}")
        new.write_bytes(contents)
        new.rename(path)


def _run(command) -> None:
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != 0:
        raise RuntimeError(done.stdout + done.stderr)


if __name__ == "__main__":
    build = HostBuild()
    build.compile()
    print(build.site)
