"""How fast a device copies its own memory: the pace of a kernel that only reads and writes."""

from __future__ import annotations

import ctypes
import functools
import os
import time

import mlx.core as mx

from mlx_norms import timing

PAST_CACHE = 256 << 20  # bytes to go round in, so that no copy finds its data in the L2 cache
SAMPLE_BYTES = 16 << 30  # a few milliseconds of copies


def measure(size: int, rounds: int = 7) -> timing.Samples:
    """Seconds that a copy of ``size`` bytes takes on the default device, among many of them."""
    if mx.default_device() == mx.cpu:
        return _cpu(size, rounds)
    return _cuda(size, rounds)


def _cpu(size: int, rounds: int) -> timing.Samples:
    # One pass that reads float32 and writes as much; there is no copy to ask MLX for.
    floats = mx.random.normal((-(-size // 4),))
    mx.eval(floats)

    def sample() -> float:
        start = time.perf_counter()
        mx.eval(mx.abs(floats))
        return time.perf_counter() - start

    sample()
    return timing.Samples(tuple(sample() for _ in range(rounds)))


def _cuda(size: int, rounds: int) -> timing.Samples:
    driver = _Driver()
    pairs = max(1, -(-PAST_CACHE // (2 * size)))
    count = max(2 * pairs, -(-SAMPLE_BYTES // (2 * size)))
    buffers = [driver.random_bytes(size) for _ in range(2 * pairs)]
    copies = [(buffers[2 * i], buffers[2 * i + 1]) for i in range(pairs)]
    try:
        driver.copies(copies, size, count)  # the first ones are slower
        seconds = [driver.copies(copies, size, count) for _ in range(rounds)]
        return timing.Samples(tuple(second / count for second in seconds))
    finally:
        driver.free(buffers)


class _Driver:
    """What of CUDA's driver API copies need, in the context that MLX uses too."""

    def __init__(self) -> None:
        self._library = ctypes.CDLL("libcuda.so.1")
        self._call("cuInit", ctypes.c_uint(0))
        device, context = ctypes.c_int(), ctypes.c_void_p()
        self._call("cuDeviceGet", ctypes.byref(device), ctypes.c_int(0))
        self._call("cuDevicePrimaryCtxRetain", ctypes.byref(context), device)
        self._call("cuCtxSetCurrent", context)

    def random_bytes(self, size: int) -> int:
        """Memory on the device. Its contents matter: zeros can be copied faster than data."""
        memory = ctypes.c_uint64()
        self._call("cuMemAlloc_v2", ctypes.byref(memory), ctypes.c_size_t(size))
        pattern = _pattern()
        done = min(size, len(pattern))
        self._call("cuMemcpyHtoD_v2", memory, ctypes.c_char_p(pattern), ctypes.c_size_t(done))
        while done < size:
            step = min(done, size - done)
            to = ctypes.c_uint64(memory.value + done)
            self._call("cuMemcpyDtoD_v2", to, memory, ctypes.c_size_t(step))
            done += step
        return memory.value

    def free(self, buffers: list[int]) -> None:
        for buffer in buffers:
            self._call("cuMemFree_v2", ctypes.c_uint64(buffer))

    def copies(self, pairs: list[tuple[int, int]], size: int, count: int) -> float:
        """Seconds that ``count`` copies of ``size`` bytes take, those of ``pairs`` in turn."""
        stream, start, stop = (ctypes.c_void_p() for _ in range(3))
        self._call("cuStreamCreate", ctypes.byref(stream), ctypes.c_uint(1))  # non-blocking
        for event in (start, stop):
            self._call("cuEventCreate", ctypes.byref(event), ctypes.c_uint(0))
        self._call("cuCtxSynchronize")
        self._call("cuEventRecord", start, stream)
        for i in range(count):
            to, source = pairs[i % len(pairs)]
            self._call(
                "cuMemcpyDtoDAsync_v2",
                ctypes.c_uint64(to),
                ctypes.c_uint64(source),
                ctypes.c_size_t(size),
                stream,
            )
        self._call("cuEventRecord", stop, stream)
        self._call("cuEventSynchronize", stop)
        milliseconds = ctypes.c_float()
        self._call("cuEventElapsedTime", ctypes.byref(milliseconds), start, stop)
        for event in (start, stop):
            self._call("cuEventDestroy_v2", event)
        self._call("cuStreamDestroy_v2", stream)
        return milliseconds.value / 1e3

    def _call(self, name: str, *arguments) -> None:
        status = getattr(self._library, name)(*arguments)
        if status != 0:
            raise RuntimeError(f"{name} failed with CUDA error {status}")


@functools.cache
def _pattern() -> bytes:
    return os.urandom(16 << 20)
