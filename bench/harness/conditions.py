"""The facts besides the code that a benchmark's figures depend on."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import subprocess
import sys
from pathlib import Path

import mlx.core as mx

import mlx_norms
from mlx_norms import _ext
from mlx_norms._measure import machine

from .driver import DriverError, driver

_CACHES = Path("/sys/devices/system/cpu/cpu0/cache")
# The largest cache that an Apple chip's CPU and GPU share; the chip does not report its size.
_APPLE_CACHE = 96 << 20
_UNKNOWN_CACHE = 64 << 20

KEEP_MEMORY = {"MALLOC_MMAP_THRESHOLD_": "4000000000", "MALLOC_TRIM_THRESHOLD_": "4000000000"}


def facts() -> dict[str, str]:
    return {
        "device": f"{mx.default_device().type.name}, {machine.chip()}",
        "cpu_isa": _ext.cpu_isa(),
        "cores": str(os.cpu_count()),
        "platform": platform.platform(),
        "python": platform.python_version(),
        **versions(),
        "malloc": "keeps memory" if keeps_memory() else "default",
        "interval": "order statistics",  # of lower and upper; quartiles before
    }


def versions() -> dict[str, str]:
    return {"mlx": importlib.metadata.version("mlx"), "mlx_norms": mlx_norms.__version__}


def cache_bytes() -> int:
    """The size of the default device's last-level cache.

    On Linux the largest that the system reports for a core; on CUDA the driver's L2 size; on
    Apple's chips, which report none, that of the largest chip.
    """
    if sys.platform == "darwin":
        return _APPLE_CACHE
    if machine.backend() == "cuda":
        return _cuda_cache()
    sizes = (file.read_text().strip() for file in _CACHES.glob("index*/size"))
    units = {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30}
    found = [int(size[:-1]) * units[size[-1]] for size in sizes if size[-1:] in units]
    return max(found, default=_UNKNOWN_CACHE)


def _cuda_cache() -> int:
    try:
        return driver().cache_bytes()
    except DriverError:
        return _UNKNOWN_CACHE


def driver_version() -> str:
    command = ["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"]
    try:
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()[0]
    except (OSError, subprocess.CalledProcessError, IndexError):
        return "unknown"


def keeps_memory() -> bool:
    return all(os.environ.get(name) == value for name, value in KEEP_MEMORY.items())


def restart_keeping_memory() -> None:
    """Restart the script with glibc's malloc set to keep freed memory, unless it already is.

    By default, malloc returns large blocks to the system depending on sizes and history. One
    provider may then pay thousands of page faults per call and another none, which distorts their
    ratio.
    """
    if not keeps_memory():
        # malloc reads these variables only when a process starts.
        os.execve(sys.executable, [sys.executable, *sys.argv], {**os.environ, **KEEP_MEMORY})
