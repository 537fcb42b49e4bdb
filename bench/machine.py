"""What the figures of a benchmark depend on besides the code."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import sys

import mlx.core as mx

import mlx_norms
from mlx_norms import _ext

KEEP_MEMORY = {"MALLOC_MMAP_THRESHOLD_": "4000000000", "MALLOC_TRIM_THRESHOLD_": "4000000000"}


def facts() -> dict[str, str]:
    return {
        "device": f"{mx.default_device().type.name}, {chip()}",
        "cpu_isa": _ext.cpu_isa(),
        "cores": str(os.cpu_count()),
        "platform": platform.platform(),
        "python": platform.python_version(),
        "mlx": importlib.metadata.version("mlx"),
        "mlx_norms": mlx_norms.__version__,
        "malloc": "keeps memory" if keeps_memory() else "default",
    }


def chip() -> str:
    """The name of the default device's chip."""
    if mx.default_device() != mx.cpu:
        return str(mx.device_info(mx.default_device()).get("device_name", "unknown"))
    try:
        with open("/proc/cpuinfo") as lines:
            names = [line.split(":", 1)[1].strip() for line in lines if "model name" in line]
    except OSError:
        names = []
    return names[0] if names else platform.processor() or platform.machine()


def keeps_memory() -> bool:
    return all(os.environ.get(name) == value for name, value in KEEP_MEMORY.items())


def restart_keeping_memory() -> None:
    """Start the script again with glibc's malloc told to keep freed memory, unless it is.

    At its defaults malloc returns large blocks to the system in a way that depends on sizes and
    history: one contestant then pays thousands of page faults a call and the other none, and the
    ratio is theirs, not the norm's.
    """
    if not keeps_memory():
        # malloc reads them when a process starts.
        os.execve(sys.executable, [sys.executable, *sys.argv], {**os.environ, **KEEP_MEMORY})
