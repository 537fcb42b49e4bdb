"""How long calls take: by the host's clock, or by a device's own events."""

from __future__ import annotations

import time

import mlx.core as mx

from . import machine
from .driver import DriverError, driver

HOST_SECONDS, EVENT_SECONDS = 0.02, 0.002  # a sample's, at least
_EVENT_CALLS = 4096
_MOST_PLUGS = 32
_CPU_OUTPUTS = 256 << 20


def output_budget() -> int:
    """Bytes that the results of calls may take that are alive together."""
    if mx.default_device() == mx.cpu:
        return _CPU_OUTPUTS
    return machine.memory_bytes() // 8


def most_calls(contestant) -> int:
    return max(1, output_budget() // max(1, contestant.output_bytes))


class HostClock:
    """A contestant by the host's clock: the time to evaluate many calls together.

    Args:
        contestant: One of contestants.py.
        building: Whether the time in which the graph of the calls is built counts, too.
        most: Calls in a sample, at most.
    """

    method, sample_seconds = "evals", HOST_SECONDS

    def __init__(self, contestant, *, building: bool = False, most: int | None = None) -> None:
        self.most = most or most_calls(contestant)
        self.overlap = mx.default_device() != mx.cpu
        self.calls = 0  # of the last sample
        self._contestant = contestant
        self._building = building

    def seconds(self, count: int) -> float:
        if count != self.calls and mx.default_device() != mx.cpu:
            self._seconds(count)  # the first run of a graph of this size instantiates it
        self.calls = count
        return self._seconds(count)

    def _seconds(self, count: int) -> float:
        start = time.perf_counter()
        pending = self._contestant.prepare(count)
        if not self._building:
            start = time.perf_counter()
        self._contestant.finish(pending)
        return time.perf_counter() - start


class EventClock:
    """A contestant by CUDA's events: the time the device needs for many independent calls.

    Large matrix products go first, and the first event is at their end: while they run, the calls
    are launched, so that the device does not wait for the host in between. As many as that takes: a
    sample in which they were over too soon is taken again with more. If most do not suffice, what
    is measured is the host's time too, and ``method`` says so.
    """

    sample_seconds, overlap = EVENT_SECONDS, True

    def __init__(self, contestant) -> None:
        self.most = min(_EVENT_CALLS, most_calls(contestant))
        self.calls = 0
        self._contestant = contestant
        self.method = "events"
        self._plugs = 1
        self._start, self._stop = driver().event(), driver().event()

    def seconds(self, count: int) -> float:
        if count != self.calls:
            self._seconds(count)
        self.calls = count
        return self._seconds(count)

    def _seconds(self, count: int) -> float:
        while True:
            pending = self._contestant.prepare(count)
            for _ in range(self._plugs):
                self._contestant.plug()
            driver().mark(self._start)
            alive = self._contestant.launch(pending)
            was_idle = driver().is_past(self._start)
            driver().mark(self._stop)
            seconds = driver().seconds(self._start, self._stop)
            self._contestant.wait()
            del alive
            if not was_idle:
                break
            if self._plugs == _MOST_PLUGS:
                self.method = "events, host"
                break
            self._plugs *= 2
        if seconds <= 0:
            raise DriverError("the device was done with the calls before it began")
        return seconds


def clock(contestant) -> HostClock | EventClock:
    """By events on CUDA, whose driver has them since 12.5; MLX shows no others to Python."""
    if machine.backend() == "cuda":
        try:
            driver().mark(driver().event())
            return EventClock(contestant)
        except DriverError:
            pass
    return HostClock(contestant)
