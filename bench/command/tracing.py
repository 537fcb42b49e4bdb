"""The host's cost of each of the first hundred calls of a provider, started one after another.

The first call compiles kernels and fills caches. After that, the host builds a graph and submits
it. When as many calls are in flight as MLX allows, each call waits for one to finish: back-pressure
at the device's speed.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

CALLS = 100
COLUMNS = ["section", "op", "dtype", "rows", "length", "provider", "call", "host_us"]
_SETTLED = slice(1, 6)  # after the one that compiles, and before any call can wait
_WAITS = 5.0  # how many times as long as the settled calls
_LEAST = 3  # calls that must wait, so that a single slow call does not count
_A_LINE = 10


@dataclass(frozen=True)
class Trace:
    """Seconds of the host for each call, in order."""

    seconds: tuple[float, ...]

    @property
    def pressed_from(self) -> int | None:
        """The number of the first call that waits for the device, None if hardly any does.

        A call waits if it takes several times as long as the settled calls. Later calls need not
        wait: one wait can free room for several calls.
        """
        limit = _WAITS * statistics.median(self.seconds[_SETTLED])
        later = range(_SETTLED.stop, len(self.seconds))
        waiting = [i + 1 for i in later if self.seconds[i] > limit]
        return waiting[0] if len(waiting) >= _LEAST else None

    @property
    def steady(self) -> float:
        """The median of the calls between the first one and those that wait."""
        end = self.pressed_from
        return statistics.median(self.seconds[1 : end - 1 if end else None])

    @property
    def pressed(self) -> float | None:
        """The mean of the calls from the first one that waits: the device's speed."""
        start = self.pressed_from
        return statistics.fmean(self.seconds[start - 1 :]) if start else None

    def figures(self) -> dict[str, object]:
        """The values for ``--json``."""
        return {
            "host_seconds": self.seconds,
            "first": self.seconds[0],
            "steady": self.steady,
            "pressed_from": self.pressed_from,
            "pressed": self.pressed,
        }

    def lines(self, name: str) -> Iterator[str]:
        """The printed lines: the calls, and what follows from them."""
        yield f"{name}: µs of the host for each of the first {len(self.seconds)} calls"
        for first in range(0, len(self.seconds), _A_LINE):
            part = self.seconds[first : first + _A_LINE]
            yield f"{first + 1:5}: " + " ".join(f"{second * 1e6:8.1f}" for second in part)
        yield f"  first call, with what it compiles: {self.seconds[0] * 1e6:.1f} µs"
        yield f"  steady state: {self.steady * 1e6:.1f} µs"
        if (start := self.pressed_from) is None:
            yield "  back-pressure: none in these calls"
        else:
            yield f"  back-pressure: from call {start}, {self.pressed * 1e6:.1f} µs on average"


def trace(start: Callable[[], object], wait: Callable[[], None], calls: int = CALLS) -> Trace:
    """Time the start of each of ``calls`` calls; all results stay alive until the end."""
    seconds, alive = [], []
    for _ in range(calls):
        begin = time.perf_counter()
        alive.append(start())
        seconds.append(time.perf_counter() - begin)
    wait()
    return Trace(tuple(seconds))
