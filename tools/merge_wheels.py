"""For who releases: merges wheels for one release of MLX each into one for all of them.

    python tools merge_wheels --outdir DIR WHEEL ...

They are of one version, Python and system. The code and the metadata are those of the wheel for the
newest MLX; each gives its folder with an extension, and all have the kernels of the CPU in common.
The merged one requires any of these releases.
Needs wheel, which the extra `test` installs.
"""

import argparse
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from packaging.version import Version

CPU_LIBRARY = "libmlx_norms_cpu.so"  # in a wheel for Linux
REQUIRED = re.compile(r"^Requires-Dist: mlx==(\S+)$", re.M)


class Unpacked:
    """A wheel's files.

    Args:
        wheel: Its file.
        directory: An empty folder for its files.

    Raises:
        ValueError: If it is not for one release of MLX.
    """

    def __init__(self, wheel: Path, directory: Path):
        _wheel("unpack", "--dest", directory, wheel)
        (self.root,) = directory.iterdir()
        (self.metadata,) = self.root.glob("*.dist-info/METADATA")
        found = REQUIRED.search(self.metadata.read_text())
        if not found:
            raise ValueError(f"{wheel} is not for one release of MLX")
        self.mlx = Version(found[1])


def requirement(releases: list[Version]) -> str:
    """What pip is told of releases, oldest first: a range without those of no extension.

    >>> requirement([Version("0.31.2"), Version("0.32.0"), Version("0.32.2")])
    'mlx>=0.31.2,<=0.32.2,!=0.32.1'
    """
    if len(releases) == 1:
        return f"mlx=={releases[0]}"
    lacking = [
        f"!={a.major}.{a.minor}.{micro}"
        for a, b in zip(releases, releases[1:])
        if a.release[:2] == b.release[:2]
        for micro in range(a.micro + 1, b.micro)
    ]
    return ",".join([f"mlx>={releases[0]}", f"<={releases[-1]}", *lacking])


def share_kernels(package: Path) -> None:
    """Keeps one of the extensions' equal libraries of kernels, where all look for it.

    Raises:
        ValueError: If they are not equal.
    """
    libraries = [*package.glob(f"_mlx_*/{CPU_LIBRARY}")]
    if len({library.read_bytes() for library in libraries}) > 1:
        raise ValueError(f"{CPU_LIBRARY} is not the same in all: see MLX_NORMS_CPU_LIBRARY")
    for library in libraries:
        library.replace(package / CPU_LIBRARY)


def merge(wheels: list[Path], outdir: Path) -> Path:
    """Merges wheels; returns the path of the new one.

    Raises:
        ValueError: If they are of several versions, Pythons or systems, if two are for one MLX, or
            one is not for one release, or their kernels of the CPU differ.
    """
    if len({wheel.name for wheel in wheels}) != 1:
        raise ValueError(f"not of one version, Python and system: {', '.join(map(str, wheels))}")
    with tempfile.TemporaryDirectory() as directory:
        folders = [Path(directory, str(i)) for i in range(len(wheels))]
        parts = sorted(map(Unpacked, wheels, folders), key=lambda part: part.mlx)
        releases = [part.mlx for part in parts]
        if len(set(releases)) != len(releases):
            raise ValueError(f"two are for one MLX: {', '.join(map(str, releases))}")
        base = parts[-1]
        for part in parts[:-1]:
            for folder in part.root.glob("mlx_norms/_mlx_*"):
                shutil.copytree(folder, base.root / "mlx_norms" / folder.name)
        share_kernels(base.root / "mlx_norms")
        text = base.metadata.read_text()
        required = f"Requires-Dist: {requirement(releases)}"
        base.metadata.write_text(REQUIRED.sub(required, text))
        outdir.mkdir(parents=True, exist_ok=True)
        _wheel("pack", "--dest-dir", outdir, base.root)
    return outdir / wheels[0].name


def _wheel(*arguments) -> None:
    command = [sys.executable, "-m", "wheel", *map(str, arguments)]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("wheels", type=Path, nargs="+", metavar="WHEEL")
    parser.add_argument("--outdir", type=Path, required=True)
    args = parser.parse_args()
    print(merge(args.wheels, args.outdir))


if __name__ == "__main__":
    main()
