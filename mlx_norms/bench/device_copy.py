"""How fast a device copies its own memory: the pace of a kernel that only reads and writes."""

from __future__ import annotations

import ctypes
import functools
import itertools
import os

import mlx.core as mx

from mlx_norms import timing

from . import machine
from .driver import Driver, driver

MOST_PAIRS = 4096
SAMPLE_BYTES = 16 << 30  # a few milliseconds of copies


def measure(size: int, rounds: int = 7) -> timing.Samples:
    """Seconds that a copy of ``size`` bytes takes on the default device, among many of them.

    On CUDA these are the driver's copies between the device's own buffers. Elsewhere there is no
    copy to ask MLX for: one pass that reads float32 and writes as much (mx.abs) stands for it.
    """
    if machine.backend() == "cuda":
        return _cuda(size, rounds)
    return _pass(size, rounds)


def size() -> int:
    """Bytes of a copy that is no matter of caches, for :func:`measure`."""
    if machine.backend() == "cuda":
        return 1 << 30
    return max(64 << 20, 2 * machine.cache_bytes())


def _pass(size: int, rounds: int) -> timing.Samples:
    floats = mx.random.normal((-(-size // 4),))
    sets = [floats, *(floats + 0 for _ in range(_pairs(size) - 1))]
    mx.eval(sets)
    turn = itertools.cycle(sets)
    return timing.measure({"copy": lambda: mx.abs(next(turn))}, rounds=rounds)["copy"]


def _pairs(size: int) -> int:
    """Copies to take in turn, so that none finds its data in the cache."""
    return max(1, min(MOST_PAIRS, -(-4 * machine.cache_bytes() // (2 * size))))


def _cuda(size: int, rounds: int) -> timing.Samples:
    pairs = _pairs(size)
    count = max(2 * pairs, -(-SAMPLE_BYTES // (2 * size)))
    buffers = [_random_bytes(driver(), size) for _ in range(2 * pairs)]
    copies = [(buffers[2 * i], buffers[2 * i + 1]) for i in range(pairs)]
    try:
        _copies(driver(), copies, size, count)  # the first ones are slower
        seconds = [_copies(driver(), copies, size, count) for _ in range(rounds)]
        return timing.Samples(tuple(second / count for second in seconds))
    finally:
        for buffer in buffers:
            driver().call("cuMemFree_v2", ctypes.c_uint64(buffer))


def _random_bytes(driver: Driver, size: int) -> int:
    """Memory on the device. Its contents matter: zeros can be copied faster than data."""
    memory = ctypes.c_uint64()
    driver.call("cuMemAlloc_v2", ctypes.byref(memory), ctypes.c_size_t(size))
    pattern = _pattern()
    done = min(size, len(pattern))
    driver.call("cuMemcpyHtoD_v2", memory, ctypes.c_char_p(pattern), ctypes.c_size_t(done))
    while done < size:
        step = min(done, size - done)
        to = ctypes.c_uint64(memory.value + done)
        driver.call("cuMemcpyDtoD_v2", to, memory, ctypes.c_size_t(step))
        done += step
    return memory.value


def _copies(driver: Driver, pairs: list[tuple[int, int]], size: int, count: int) -> float:
    """Seconds that ``count`` copies of ``size`` bytes take, those of ``pairs`` in turn."""
    stream = ctypes.c_void_p()
    driver.call("cuStreamCreate", ctypes.byref(stream), ctypes.c_uint(1))  # non-blocking
    start, stop = driver.event(), driver.event()
    driver.call("cuCtxSynchronize")
    driver.call("cuEventRecord", start, stream)
    for i in range(count):
        to, source = pairs[i % len(pairs)]
        addresses = (ctypes.c_uint64(to), ctypes.c_uint64(source))
        driver.call("cuMemcpyDtoDAsync_v2", *addresses, ctypes.c_size_t(size), stream)
    driver.call("cuEventRecord", stop, stream)
    seconds = driver.seconds(start, stop)
    for event in (start, stop):
        driver.call("cuEventDestroy_v2", event)
    driver.call("cuStreamDestroy_v2", stream)
    return seconds


@functools.cache
def _pattern() -> bytes:
    return os.urandom(16 << 20)
