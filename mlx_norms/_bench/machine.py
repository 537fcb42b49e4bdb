"""What the figures of a benchmark depend on besides the code."""

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

from . import host_memory
from .driver import DriverError, driver

_CACHES = Path("/sys/devices/system/cpu/cpu0/cache")
# Apple does not tell the size of the cache that a chip's CPU and GPU share; the largest is this.
_APPLE_CACHE = 96 << 20
_UNKNOWN_CACHE = 64 << 20

KEEP_MEMORY = {"MALLOC_MMAP_THRESHOLD_": "4000000000", "MALLOC_TRIM_THRESHOLD_": "4000000000"}


def facts() -> dict[str, str]:
    return {
        "device": f"{mx.default_device().type.name}, {chip()}",
        "cpu_isa": _ext.cpu_isa(),
        "cores": str(os.cpu_count()),
        "platform": platform.platform(),
        "python": platform.python_version(),
        **versions(),
        "malloc": "keeps memory" if keeps_memory() else "default",
    }


def versions() -> dict[str, str]:
    return {"mlx": importlib.metadata.version("mlx"), "mlx_norms": mlx_norms.__version__}


def chip() -> str:
    """The name of the default device's chip."""
    about = mx.device_info(mx.default_device())
    return str(about.get("device_name", about.get("architecture", "unknown")))


def backend() -> str:
    """cpu, cuda or metal: what runs on the default device."""
    if mx.default_device() == mx.cpu:
        return "cpu"
    return "metal" if mx.metal.is_available() else "cuda"


def cache_bytes() -> int:
    """The size of the default device's last cache before its memory.

    On Linux the largest that the system names for a core; on CUDA the L2 cache, by the driver; on
    Apple's chips, which do not tell, that of the largest ones.
    """
    if sys.platform == "darwin":
        return _APPLE_CACHE
    if backend() == "cuda":
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


def memory_bytes() -> int:
    """Bytes that can be had on the default device.

    On the CPU what the system can still give now, within the limits of the process and its groups;
    on a GPU what its driver recommends to use at most, or else all that it has.
    """
    if mx.default_device() == mx.cpu:
        return host_memory.available()
    about = mx.device_info(mx.default_device())
    keys = ("max_recommended_working_set_size", "total_memory", "memory_size")
    return int(next((about[key] for key in keys if about.get(key)), 4 << 30))


def gib(size: int) -> str:
    return f"{size / 2**30:.4g} GiB"


def driver_version() -> str:
    command = ["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"]
    try:
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()[0]
    except (OSError, subprocess.CalledProcessError, IndexError):
        return "unknown"


def keeps_memory() -> bool:
    return all(os.environ.get(name) == value for name, value in KEEP_MEMORY.items())


def restart_keeping_memory(*command: str) -> None:
    """Start the script again with glibc's malloc told to keep freed memory, unless it is.

    Args:
        command: Python's arguments, those of the script by default.

    At its defaults malloc returns large blocks to the system in a way that depends on sizes and
    history: one provider then pays thousands of page faults a call and the other none, and the
    ratio is theirs, not the norm's.
    """
    if not keeps_memory():
        # malloc reads them when a process starts.
        arguments = [sys.executable, *(command or sys.argv)]
        os.execve(sys.executable, arguments, {**os.environ, **KEEP_MEMORY})
