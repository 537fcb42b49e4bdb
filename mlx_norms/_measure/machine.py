"""The default device, and how much memory it has."""

from __future__ import annotations

import mlx.core as mx

from . import host_memory


def chip() -> str:
    """The name of the default device's chip."""
    about = mx.device_info(mx.default_device())
    return str(about.get("device_name", about.get("architecture", "unknown")))


def backend() -> str:
    """The default device's backend: cpu, cuda or metal."""
    if mx.default_device() == mx.cpu:
        return "cpu"
    return "metal" if mx.metal.is_available() else "cuda"


def memory_bytes() -> int:
    """Bytes that can be allocated on the default device.

    On the CPU, what the system can still give, within the limits of the process and its groups; on
    a GPU, the size that its driver recommends as the limit, or else all of its memory.
    """
    if mx.default_device() == mx.cpu:
        return host_memory.available()
    about = mx.device_info(mx.default_device())
    keys = ("max_recommended_working_set_size", "total_memory", "memory_size")
    return int(next((about[key] for key in keys if about.get(key)), 4 << 30))


def gib(size: int) -> str:
    return f"{size / 2**30:.4g} GiB"
