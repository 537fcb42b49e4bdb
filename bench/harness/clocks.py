"""How long calls take, by the host's clock or a device's own."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable
from contextlib import AbstractContextManager

import mlx.core as mx

from mlx_norms._measure import machine

HOST_SECONDS, DEVICE_SECONDS = 0.02, 0.002  # at least, per sample
_DEVICE_CALLS = 4096
_MOST_PLUGS = 32
_PLUG_SAMPLES = 4  # the first one compiles
_CPU_OUTPUTS = 256 << 20


def output_budget() -> int:
    """Bytes that the outputs of calls in flight may take."""
    if mx.default_device() == mx.cpu:
        return _CPU_OUTPUTS
    return machine.memory_bytes() // 8


def most_calls(provider) -> int:
    return max(1, output_budget() // max(1, provider.output_bytes))


class HostClock:
    """A provider timed by the host's clock: the time to evaluate many calls together.

    Args:
        provider: One of providers.py.
        building: Whether the time to build the graph of the calls counts as well.
        most: The largest number of calls in a sample.
        context: Makes what they run in, as mlx_norms.patched.
    """

    method, sample_seconds = "evals", HOST_SECONDS

    def __init__(
        self,
        provider,
        *,
        building: bool = False,
        most: int | None = None,
        context: Callable[[], AbstractContextManager] = contextlib.nullcontext,
    ) -> None:
        self.most = most or most_calls(provider)
        self.overlap = mx.default_device() != mx.cpu
        self.calls = 0  # in the last sample
        self._provider = provider
        self._building = building
        self._context = context

    def seconds(self, count: int) -> float:
        with self._context():
            if count != self.calls and mx.default_device() != mx.cpu:
                self._seconds(count)  # the first run instantiates the graph for this size
            self.calls = count
            return self._seconds(count)

    def _seconds(self, count: int) -> float:
        start = time.perf_counter()
        pending = self._provider.prepare(count)
        if not self._building:
            start = time.perf_counter()
        self._provider.finish(pending)
        return time.perf_counter() - start


class DeviceClock:
    """A provider timed by the device's clock: its time for many independent calls.

    Large matmuls (the plug) go first, and the clock is read when they end. The calls are launched
    while they run, so that the device does not wait for the host between calls. If launching took
    longer than the plug, the sample is taken again with more matmuls. If the largest plug does not
    suffice, the sample includes host time, and ``method`` says so.
    """

    sample_seconds, overlap = DEVICE_SECONDS, True

    def __init__(self, provider) -> None:
        self.most = min(_DEVICE_CALLS, most_calls(provider))
        self.calls = 0
        self._provider = provider
        self.method = "device"
        self._plugs = 1
        self._plug_seconds = min(self._plug() for _ in range(_PLUG_SAMPLES))

    def seconds(self, count: int) -> float:
        if count != self.calls:
            self._seconds(count)
        self.calls = count
        return self._seconds(count)

    def _plug(self) -> float:
        start = self._provider.mark()
        self._provider.plug()
        stop = self._provider.mark()
        return self._provider.seconds_between(start, stop)

    def _seconds(self, count: int) -> float:
        while True:
            pending = self._provider.prepare(count)
            begin = time.perf_counter()
            for _ in range(self._plugs):
                self._provider.plug()
            start = self._provider.mark()
            alive = self._provider.launch(pending)
            launching = time.perf_counter() - begin
            stop = self._provider.mark()
            seconds = self._provider.seconds_between(start, stop)
            self._provider.wait()
            del alive
            if launching < self._plugs * self._plug_seconds:
                return seconds
            if self._plugs == _MOST_PLUGS:
                self.method = "device, host"
                return seconds
            self._plugs *= 2


def kind() -> type[HostClock | DeviceClock]:
    """The device's clock on CUDA; on other devices MLX has none for Python, so the host's."""
    return DeviceClock if machine.backend() == "cuda" else HostClock


def clock(provider) -> HostClock | DeviceClock:
    return kind()(provider)
