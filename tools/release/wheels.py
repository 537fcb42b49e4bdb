"""The packages of a release, each part of which is built once."""

import os
import platform
import shutil
import subprocess
import sys
import tarfile
import tempfile
import venv
import zipfile
from collections.abc import Callable
from pathlib import Path

import linux_wheel
from merge_wheels import CPU_LIBRARY, merge
from mlx_versions import NANOBIND

PYTHON = f"cp{sys.version_info.major}{sys.version_info.minor}"
# Besides the nanobind of its MLX, what a macOS wheel is built with.
MACOS_TOOLS = ("cmake", "macholib", "ninja", "packaging", "pyyaml", "scikit-build-core", "ziglang")


class Release:
    """The packages of a checkout for one Python.

    Args:
        root: The checkout.
        outdir: Where packages go; `parts` in it has what they are merged from.
        mlx: The releases of MLX that a wheel is for, oldest first.
    """

    def __init__(self, root: Path, outdir: Path, mlx: list[str]):
        self.root, self.outdir, self.mlx = root, outdir, mlx
        self.parts = outdir / "parts"

    def sdist(self) -> Path:
        return once(self.outdir, "*.tar.gz", linux_wheel.build_sdist)

    def linux(self) -> Path:
        """Of the sdist, for this system."""
        made = f"*-{PYTHON}-{PYTHON}-manylinux*_{platform.machine()}.whl"
        return once(self.outdir, made, self._linux)

    def macos(self) -> Path:
        """For Apple silicon, by zig."""
        made = f"*-{PYTHON}-{PYTHON}-macosx_*_arm64.whl"
        return once(self.outdir, made, self._macos)

    def _linux(self, outdir: Path) -> None:
        source = self.source()
        folders = [self.parts / f"linux-{PYTHON}" / mlx for mlx in self.mlx]
        wheels = []
        for mlx, folder in zip(self.mlx, folders):
            kernels = next(folders[0].glob(f"build/_mlx_*/{CPU_LIBRARY}"), None)

            def build(outdir: Path) -> None:
                shutil.rmtree(folder / "wheel", ignore_errors=True)
                wheel = linux_wheel.build_wheel(source, mlx, folder, kernels)
                wheel.replace(outdir / wheel.name)
                shutil.rmtree(folder / "venv", ignore_errors=True)

            wheels.append(self.part(folder / "made", mlx, build))
        with tempfile.TemporaryDirectory(dir=self.parts) as directory:
            merged = merge(wheels, Path(directory))
            linux_wheel.repair(merged, outdir)

    def _macos(self, outdir: Path) -> None:
        stub = self.stub()
        wheels = []
        for mlx in self.mlx:
            folder = self.parts / f"macos-{PYTHON}" / mlx

            def build(outdir: Path) -> None:
                python = environment(
                    folder / "venv", *MACOS_TOOLS, f"nanobind=={NANOBIND[mlx]}", "typing_extensions"
                )
                tool = [python, self.root / "tools", "macos.wheel", "--mlx", mlx]
                subprocess.run([*tool, "--outdir", outdir, "--stub", stub], check=True)
                shutil.rmtree(folder / "venv", ignore_errors=True)

            wheels.append(self.part(folder / "made", mlx, build))
        merged = merge(wheels, outdir)
        check = [sys.executable, self.root / "tools", "macos.check_wheel", merged]
        subprocess.run(check, check=True)

    def part(self, folder: Path, mlx: str, build: Callable[[Path], None]) -> Path:
        """The wheel for one MLX."""
        folder.mkdir(parents=True, exist_ok=True)
        print(f"{folder.parent.parent.name}, MLX {mlx}", flush=True)
        return once(folder, "*.whl", build)

    def source(self) -> Path:
        """The unpacked sdist."""
        sdist = self.sdist()

        def unpack(outdir: Path) -> None:
            with tarfile.open(sdist) as archive:
                archive.extractall(outdir, filter="data")

        (self.parts / "source").mkdir(parents=True, exist_ok=True)
        return once(self.parts / "source", "mlx_norms-*", unpack)

    def stub(self) -> Path:
        """The extension's stub file, from any wheel for Linux: it is the same in all."""
        wheel = next(self.outdir.glob("*linux*.whl"), None) or self.linux()
        with zipfile.ZipFile(wheel) as archive:
            return Path(archive.extract("mlx_norms/_ext.pyi", self.parts / "stub"))


def once(folder: Path, pattern: str, build: Callable[[Path], object]) -> Path:
    """What a folder has by this name or, the first time, what is built into it, if it is whole."""
    found = [*folder.glob(pattern)]
    if not found:
        with tempfile.TemporaryDirectory(dir=folder) as directory:
            build(Path(directory))
            (made,) = Path(directory).iterdir()
            found = [made.replace(folder / made.name)]
    (path,) = found
    return path


def environment(folder: Path, *packages: str | Path) -> Path:
    """A new environment with these packages; returns its Python."""
    venv.create(folder, with_pip=True, clear=True)
    python = folder / "bin" / "python"
    pip = [python, "-m", "pip", "-q", "--disable-pip-version-check", "install"]
    subprocess.run([*pip, *packages], check=True, env=clean())
    return python


def clean() -> dict[str, str]:
    """The variables of a process that finds nothing but its environment's packages."""
    return {
        name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "MLX_"))
    }
