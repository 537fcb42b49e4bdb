"""MLX's macOS wheels: their Metal headers and libmlx.dylib, fetched by pip once."""

import os
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

from mlx_versions import NEWEST

CACHE = Path.home() / ".cache" / "mlx_norms"
MACOS = (14, 15, 26)  # there is a wheel for each; their headers are the same


def fetch(macos: int = MACOS[-1], mlx: str = NEWEST) -> Path:
    """Downloads and unpacks the wheel mlx-metal, unless the cache has it.

    Args:
        macos: The system that it is for, of MACOS.
        mlx: The release of MLX.

    Returns:
        Its folder `mlx`, with `include`, `include/metal_cpp` and `lib/libmlx.dylib`.

    Raises:
        RuntimeError: If pip cannot download it; the text is pip's.
    """
    return _unpacked(f"mlx-metal=={mlx}", macos, "")


def fetch_bindings(macos: int = MACOS[-1], mlx: str = NEWEST) -> Path:
    """Likewise the wheel mlx for this version of Python; returns the extension mlx.core."""
    python = f"-cp3{sys.version_info.minor}"
    (core,) = _unpacked(f"mlx=={mlx}", macos, python).glob("core.*.so")
    return core


def _unpacked(requirement: str, macos: int, suffix: str) -> Path:
    folder = CACHE / f"{requirement.replace('==', '-')}-macos-{macos}{suffix}"
    if not folder.is_dir():
        CACHE.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=CACHE) as directory:
            wheel = download(requirement, macos, Path(directory))
            unpacked = Path(directory) / "unpacked"
            with zipfile.ZipFile(wheel) as archive:
                # MLX's compiled kernels, most of the wheel, are of no use here.
                names = [n for n in archive.namelist() if not n.endswith(".metallib")]
                archive.extractall(unpacked, names)
            try:
                os.rename(unpacked, folder)
            except OSError:
                if not folder.is_dir():  # else another process was faster
                    raise
    return folder / "mlx"


def download(requirement: str, macos: int, directory: Path) -> Path:
    command = [sys.executable, "-m", "pip", "download", "-q", "--no-deps", "-d", str(directory)]
    command += ["--platform", f"macosx_{macos}_0_arm64", "--only-binary=:all:", requirement]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != 0:
        raise RuntimeError(f"pip cannot download {requirement}:\n{done.stderr}")
    return next(directory.glob("*.whl"))
