"""How long calls take: by the host's clock, or by a device's own events."""

from __future__ import annotations

import time

import mlx.core as mx

from . import machine
from .driver import DriverError, driver

HOST_SECONDS, EVENT_SECONDS = 0.02, 0.002  # a sample's, at least
_EVENT_CALLS = 256  # the plug is over before more have been launched
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

    A large matrix product goes first, and the first event is at its end: while it runs, the calls
    are launched, so that the device does not wait for the host in between.
    """

    method, sample_seconds = "events", EVENT_SECONDS

    def __init__(self, contestant) -> None:
        self.most = min(_EVENT_CALLS, most_calls(contestant))
        self.calls = 0
        self._contestant = contestant
        self._start, self._stop = driver().event(), driver().event()

    def seconds(self, count: int) -> float:
        if count != self.calls:
            self._seconds(count)
        self.calls = count
        return self._seconds(count)

    def _seconds(self, count: int) -> float:
        pending = self._contestant.prepare(count)
        alive = [self._contestant.plug()]
        driver().mark(self._start)
        alive.append(self._contestant.launch(pending))
        driver().mark(self._stop)
        seconds = driver().seconds(self._start, self._stop)
        self._contestant.wait()
        return max(seconds, 1e-9)


def clock(contestant) -> HostClock | EventClock:
    """By events on CUDA, whose driver has them since 12.5; MLX shows no others to Python."""
    if machine.backend() == "cuda":
        try:
            driver().mark(driver().event())
            return EventClock(contestant)
        except DriverError:
            pass
    return HostClock(contestant)
