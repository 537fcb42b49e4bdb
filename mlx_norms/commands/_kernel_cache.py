"""The compiled CUDA kernels on disk. csrc/gpu/cuda/cubin.cpp has the names of the files."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import Path

# A kernel's name and a digest; in a file that is being written, then the process and a number.
_NAME = re.compile(r".*_[0-9a-f]{16}(\.\d+\.\d+)?", re.DOTALL)


@dataclass(frozen=True)
class KernelCache:
    """What the folder has of us.

    Attributes:
        folder: None if the environment names none, so that kernels are not kept.
        files: Other files and folders in it are not ours. A link is one if it has such a name.
    """

    folder: Path | None
    files: tuple[Path, ...]
    bytes: int

    def __str__(self) -> str:
        if self.folder is None:
            return "none (MLX_NORMS_CACHE is empty, or HOME is not set)"
        return f"{self.folder} ({self.contents})"

    @property
    def contents(self) -> str:
        """The number and the size of the files."""
        if not self.files:
            return "no compiled CUDA kernels"
        plural = "s" * (len(self.files) > 1)
        return f"{len(self.files)} compiled CUDA kernel{plural}, {_size(self.bytes)}"

    def figures(self) -> dict[str, object]:
        """The same for ``--json``."""
        folder = None if self.folder is None else str(self.folder)
        return {"folder": folder, "files": len(self.files), "bytes": self.bytes}


def find() -> KernelCache:
    """The cache of this environment.

    Raises:
        OSError: If the folder cannot be read.
    """
    folder = _folder()
    files, size = [], 0
    try:
        entries = list(os.scandir(folder)) if folder else []
    except (FileNotFoundError, NotADirectoryError):
        entries = []
    for entry in entries:
        if _NAME.fullmatch(entry.name) and not entry.is_dir(follow_symlinks=False):
            files.append(folder / entry.name)
            size += entry.stat(follow_symlinks=False).st_size
    return KernelCache(folder, tuple(files), size)


def _folder() -> Path | None:
    if (given := os.environ.get("MLX_NORMS_CACHE")) is not None:
        return Path(given) if given else None
    home = os.environ.get("HOME")
    return None if home is None else Path(home) / ".cache" / "mlx_norms"


def _size(count: int) -> str:
    return f"{count / 2**20:.1f} MiB" if count >= 2**20 else f"{count / 2**10:.1f} KiB"
