"""How fast a device copies its own memory: the limit of a kernel that only reads and writes."""

from __future__ import annotations

import contextlib
import ctypes
import functools
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import mlx.core as mx

from mlx_norms import _ext
from mlx_norms._measure import machine, timing

from . import clocks, conditions
from .driver import Driver, driver
from .providers import Calls, copies, make_room, sets_needed

LARGE = 1 << 30  # bytes
_MOST_PAIRS = 4096
_LEAST_PART = 64 << 10  # bytes that are worth a thread
_SAMPLE_BYTES = 16 << 30  # a few milliseconds of copies


def rate(size: int, say: Callable[[str], None]) -> float:
    """Bytes per second that a copy of ``size`` bytes reads and writes; also tells ``say``."""
    if machine.backend() == "cuda":
        seconds = _cuda(size)
    else:
        (seconds,) = timing.measure({"copy": clocks.host(side(size), "evals")}).values()
    make_room()
    slow, fast = (2 * size / each / 1e9 for each in reversed(seconds.interval))
    found = 2 * size / seconds.median
    say(
        f"A copy of {size / 2**20:.4g} MiB: {found / 1e9:.4g} GB/s, interval {slow:.4g} to "
        f"{fast:.4g}."
    )
    return found


def side(size: int, hot: bool = False) -> Copies | Calls:
    """What stands in for a copy of ``size`` bytes among other sides, and takes its turn with them.

    MLX has no op that only copies: on a GPU it is mx.abs of as much float32, on the CPU NumPy's
    copies into memory that is there already, by as many threads as the norms have.
    """
    sets = sets_needed(size, hot)
    if machine.backend() == "cpu":
        return Copies(size, sets)
    floats = mx.random.normal((-(-size // 4),))
    return Calls(mx.abs, copies([floats], sets), output_bytes=size)


class Copies:
    """Copies by threads, which take their inputs from sets in turn, as in providers.py."""

    context = contextlib.nullcontext

    def __init__(self, size: int, sets: int) -> None:
        import numpy as np

        self.output_bytes, self._copy = size, np.copyto
        self._inputs = [np.ones(size, np.uint8) for _ in range(sets)]
        self._outputs = [np.zeros(size, np.uint8) for _ in range(timing.batch_size(size))]
        self._threads = max(1, min(_ext.cpu_threads(), size // _LEAST_PART))
        self._pool = ThreadPoolExecutor(self._threads)
        self._turn = 0

    def prepare(self, count: int) -> list[tuple]:
        turns = range(self._turn, self._turn + count)
        self._turn += count
        ins, outs = self._inputs, self._outputs
        return [(outs[turn % len(outs)], ins[turn % len(ins)]) for turn in turns]

    def finish(self, pending: list[tuple], *, alone: bool = False) -> None:
        def part(thread: int) -> None:
            first, last = (self.output_bytes * n // self._threads for n in (thread, thread + 1))
            for to, source in pending:
                self._copy(to[first:last], source[first:last])

        if self._threads == 1:
            part(0)
        else:
            list(self._pool.map(part, range(self._threads)))


def _cuda(size: int) -> timing.Samples:
    """Seconds of the driver's copies between device buffers, with pairs taken in turn."""
    pairs = max(1, min(_MOST_PAIRS, -(-4 * conditions.cache_bytes() // (2 * size))))
    count = max(2 * pairs, -(-_SAMPLE_BYTES // (2 * size)))
    buffers = [_random_bytes(driver(), size) for _ in range(2 * pairs)]
    try:
        sample = functools.partial(_copies, driver(), buffers, size, count)
        sample()  # warm-up
        return timing.Samples(tuple(sample() / count for _ in range(timing.ROUNDS)))
    finally:
        for buffer in buffers:
            driver().call("cuMemFree_v2", ctypes.c_uint64(buffer))


def _random_bytes(driver: Driver, size: int) -> int:
    """Memory on the device with random contents, since zeros may be copied faster."""
    memory, pattern = ctypes.c_uint64(), _pattern()
    driver.call("cuMemAlloc_v2", ctypes.byref(memory), ctypes.c_size_t(size))
    for done in range(0, size, len(pattern)):
        to, part = ctypes.c_uint64(memory.value + done), min(len(pattern), size - done)
        driver.call("cuMemcpyHtoD_v2", to, ctypes.c_char_p(pattern), ctypes.c_size_t(part))
    return memory.value


def _copies(driver: Driver, buffers: list[int], size: int, count: int) -> float:
    stream = ctypes.c_void_p()
    driver.call("cuStreamCreate", ctypes.byref(stream), ctypes.c_uint(1))  # non-blocking
    start, stop = driver.event(), driver.event()
    driver.call("cuCtxSynchronize")
    driver.call("cuEventRecord", start, stream)
    for i in range(count):
        first = 2 * i % len(buffers)
        addresses = map(ctypes.c_uint64, buffers[first : first + 2])
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
