"""How long a device is busy with a call of something.

By CUPTI, through torch's profiler, which sees every kernel of the process, whoever launched it; or
by the slope of the time of evals over the number of calls in them.
"""

from __future__ import annotations

import bisect
import contextlib
import json
import os
import statistics
import tempfile
import time
from collections.abc import Hashable, Iterator
from dataclasses import dataclass
from pathlib import Path

# CUPTI is to stay: put down and set up again, it can miss kernels of graphs made in between.
os.environ.setdefault("TEARDOWN_CUPTI", "0")
os.environ.setdefault("DISABLE_CUPTI_LAZY_REINIT", "1")

PAST_CACHE = 256 << 20
TOGETHER_ROUNDS = 3
ON_DEVICE = ("kernel", "gpu_memcpy", "gpu_memset")


@dataclass(frozen=True)
class Activity:
    """What a device did within a range."""

    seconds: float  # in which at least one kernel ran
    kernels: int


@dataclass(frozen=True)
class KernelTime:
    """Seconds of the device a call."""

    method: str
    together: float  # while independent calls run together
    alone: float | None = None
    kernels: float | None = None  # a call


def calls_past_cache(cell) -> int:
    """Calls after whose outputs the cache holds none of the first one's."""
    return max(6, min(40, -(-PAST_CACHE // cell.output_bytes)))


class Clock:
    """Times what it is given until its ``with`` block ends, and has the times then."""

    def __init__(self, cupti: bool) -> None:
        self.times: dict[Hashable, KernelTime] = {}
        self._trace = Trace() if cupti else None
        self._counts: dict[Hashable, int] = {}

    def __enter__(self) -> Clock:
        if self._trace:
            self._trace.__enter__()
        return self

    def measure(self, key: Hashable, contestant, count: int) -> None:
        """Run ``count`` calls of a contestant of mlx_norms.bench.contestants, several times."""
        contestant.finish(contestant.prepare(count))
        if self._trace is None:
            self.times[key] = KernelTime("evals", _slope(contestant, count))
            return
        for way, rounds in (("together", TOGETHER_ROUNDS), ("alone", 1)):
            for turn in range(rounds):
                pending = contestant.prepare(count)
                with self._trace.range(f"{len(self._counts)}/{way}/{turn}"):
                    contestant.finish(pending, alone=way == "alone")
        self._counts[key] = count

    def __exit__(self, *error) -> None:
        if self._trace is None:
            return
        self._trace.__exit__(*error)
        for i, (key, count) in enumerate(self._counts.items()):
            activity = self._trace.activity
            together = [activity.get(f"{i}/together/{turn}") for turn in range(TOGETHER_ROUNDS)]
            alone = activity.get(f"{i}/alone/0")
            if all(together) and alone:
                seconds = statistics.median(part.seconds for part in together)
                kernels = statistics.median(part.kernels for part in together)
                self.times[key] = KernelTime(
                    "CUPTI", seconds / count, alone.seconds / count, kernels / count
                )


def _slope(contestant, count: int) -> float:
    def seconds(calls: int) -> float:
        pending = contestant.prepare(calls)
        start = time.perf_counter()
        contestant.finish(pending)
        return time.perf_counter() - start

    seconds(3 * count)
    slopes = [(seconds(3 * count) - seconds(count)) / (2 * count) for _ in range(5)]
    return max(statistics.median(slopes), 1e-9)


class Trace:
    """The device's activity in named ranges between ``with Trace() as trace`` and its end.

    Ranges are marked on the host, and must wait for what they start: a kernel belongs to the range
    in which it started.
    """

    def __init__(self) -> None:
        self.activity: dict[str, Activity] = {}

    @staticmethod
    def available() -> bool:
        try:
            import torch
        except ImportError:
            return False
        return torch.cuda.is_available()

    def __enter__(self) -> Trace:
        import torch
        from torch.profiler import ProfilerActivity, profile

        torch.zeros(1, device="cuda")  # with a context, the profiler finds CUPTI
        self._mark = torch.profiler.record_function
        self._profile = profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA])
        self._profile.__enter__()
        return self

    def __exit__(self, *error) -> None:
        self._profile.__exit__(*error)
        if error[0] is None:
            with tempfile.TemporaryDirectory() as directory:
                path = Path(directory) / "trace.json"
                self._profile.export_chrome_trace(str(path))
                self.activity = activity(json.loads(path.read_text())["traceEvents"])

    @contextlib.contextmanager
    def range(self, name: str) -> Iterator[None]:
        with self._mark(name):
            yield


def activity(events: list[dict]) -> dict[str, Activity]:
    """The device's activity in each of a trace's marked ranges; none where nothing ran."""
    kernels = sorted(
        (event["ts"], event["ts"] + event["dur"])
        for event in events
        if event.get("ph") == "X" and event.get("cat") in ON_DEVICE
    )
    starts = [start for start, _ in kernels]
    found = {}
    for event in events:
        if event.get("ph") == "X" and event.get("cat") == "user_annotation":
            first = bisect.bisect_left(starts, event["ts"])
            last = bisect.bisect_right(starts, event["ts"] + event["dur"])
            if last > first:
                found[event["name"]] = Activity(_union(kernels[first:last]) * 1e-6, last - first)
    return found


def _union(intervals: list[tuple[float, float]]) -> float:
    """The length of what sorted intervals cover together."""
    covered, reached = 0.0, float("-inf")
    for start, stop in intervals:
        covered += max(0.0, stop - max(start, reached))
        reached = max(reached, stop)
    return covered
