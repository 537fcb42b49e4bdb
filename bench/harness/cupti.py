"""Device activity from CUPTI, through torch's profiler, which sees every kernel of the process."""

from __future__ import annotations

import bisect
import contextlib
import json
import os
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import mlx.core as mx

# Keep CUPTI set up: after a teardown it can miss kernels of graphs that were made in between.
os.environ.setdefault("TEARDOWN_CUPTI", "0")
os.environ.setdefault("DISABLE_CUPTI_LAZY_REINIT", "1")

ON_DEVICE = ("kernel", "gpu_memcpy", "gpu_memset")


@dataclass(frozen=True)
class Activity:
    """What the device did within a range."""

    seconds: float  # during which at least one kernel ran
    kernels: int


class Trace:
    """The device's activity in named ranges, recorded within ``with Trace() as trace``.

    Ranges are marked on the host, and must wait for the kernels that they start: a kernel belongs
    to the range in which it started.
    """

    def __init__(self) -> None:
        self.activity: dict[str, Activity] = {}

    @staticmethod
    def available() -> bool:
        """Whether torch can use CUPTI here, and MLX computes on the device that it sees."""
        if mx.default_device() == mx.cpu:
            return False
        try:
            import torch
        except ImportError:
            return False
        return torch.cuda.is_available()

    def __enter__(self) -> Trace:
        import torch
        from torch.profiler import ProfilerActivity, profile

        torch.zeros(1, device="cuda")  # the profiler finds CUPTI once there is a context
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
    """The device's activity per marked range of a trace; ranges where nothing ran are omitted."""
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
    """The total length that sorted intervals cover."""
    covered, reached = 0.0, float("-inf")
    for start, stop in intervals:
        covered += max(0.0, stop - max(start, reached))
        reached = max(reached, stop)
    return covered
