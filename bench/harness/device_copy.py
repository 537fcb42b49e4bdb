"""How fast a device copies its own memory: the limit of a kernel that only reads and writes."""

from __future__ import annotations

import ctypes
import functools
import os
from collections.abc import Callable, Iterable

import mlx.core as mx

from mlx_norms import _ext
from mlx_norms._measure import machine, timing

from . import clocks, conditions
from .driver import Driver, driver
from .providers import Calls, copies, make_room

MOST_PAIRS = 4096
_LEAST_PART = 64 << 10  # bytes that are worth a thread
SAMPLE_BYTES = 16 << 30  # a few milliseconds of copies


def measure(size: int, rounds: int = 7) -> timing.Samples:
    """Seconds that a copy of ``size`` bytes takes on the default device, among many copies.

    On CUDA these are the driver's copies between device buffers, elsewhere those of
    :func:`passes`.
    """
    if machine.backend() == "cuda":
        return _cuda(size, rounds)
    clocked = {name: clocks.clock(calls) for name, calls in passes(size).items()}
    return fastest(timing.measure(clocked, rounds=rounds).values())


def rate(size: int, say: Callable[[str], None]) -> float:
    """Bytes per second that a copy of ``size`` bytes reads and writes; also tells ``say``."""
    seconds = measure(size)
    make_room()
    slow, fast = (2 * size / quartile / 1e9 for quartile in reversed(seconds.interval))
    found = 2 * size / seconds.median
    say(
        f"A copy of {size / 2**20:.4g} MiB: {found / 1e9:.4g} GB/s, quartiles {slow:.4g} to "
        f"{fast:.4g}."
    )
    return found


def size() -> int:
    """Bytes of a copy that is too large for caches, for :func:`measure`."""
    if machine.backend() == "cuda":
        return 1 << 30
    return max(64 << 20, 2 * conditions.cache_bytes())


def passes(size: int) -> dict[str, Calls]:
    """Providers that stand in for a copy of ``size`` bytes, since MLX has no op that only copies.

    They read float32 and write as much (mx.abs). On the CPU, where an op runs on one thread, large
    copies are also split over as many streams as the norms have threads.
    """
    sets = copies([mx.random.normal((-(-size // 4),))], _pairs(size))
    found = {"copy": Calls(mx.abs, sets, output_bytes=size)}
    if machine.backend() == "cpu":
        count = min(_ext.cpu_threads(), size // _LEAST_PART)
        if count > 1:
            parts = [mx.split(floats, _cuts(floats.size, count)) for (floats,) in sets]
            mx.eval(parts)
            found[f"copy by {count}"] = Calls(_shared, parts, output_bytes=size)
    return found


def fastest(samples: Iterable[timing.Samples]) -> timing.Samples:
    """The samples with the smallest median."""
    return min(samples, key=lambda each: each.median)


def _cuts(size: int, count: int) -> list[int]:
    return [size * i // count for i in range(1, count)]


def _shared(*parts: mx.array) -> list[mx.array]:
    return [mx.abs(part, stream=s) for part, s in zip(parts, _streams(len(parts)), strict=True)]


@functools.cache
def _streams(count: int) -> list[mx.Stream]:
    return [mx.new_stream(mx.cpu) for _ in range(count)]


def _pairs(size: int) -> int:
    """The number of copies to take in turn so that none finds its data in the cache."""
    return max(1, min(MOST_PAIRS, -(-4 * conditions.cache_bytes() // (2 * size))))


def _cuda(size: int, rounds: int) -> timing.Samples:
    pairs = _pairs(size)
    count = max(2 * pairs, -(-SAMPLE_BYTES // (2 * size)))
    buffers = [_random_bytes(driver(), size) for _ in range(2 * pairs)]
    copies = [(buffers[2 * i], buffers[2 * i + 1]) for i in range(pairs)]
    try:
        _copies(driver(), copies, size, count)  # warm-up
        seconds = [_copies(driver(), copies, size, count) for _ in range(rounds)]
        return timing.Samples(tuple(second / count for second in seconds))
    finally:
        for buffer in buffers:
            driver().call("cuMemFree_v2", ctypes.c_uint64(buffer))


def _random_bytes(driver: Driver, size: int) -> int:
    """Memory on the device with random contents, since zeros may be copied faster."""
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
    """Seconds for ``count`` copies of ``size`` bytes, with ``pairs`` taken in turn."""
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
