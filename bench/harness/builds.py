"""Compares builds of this package, which take turns in processes of their own.

A script starts itself once per build with ``--worker``; that process calls :func:`work`.
"""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterable, Mapping

import mlx.core as mx
from mlx.utils import tree_flatten

from mlx_norms._measure import timing

from . import conditions
from .clocks import HostClock
from .cupti import Trace
from .kernels import of_range
from .providers import Calls

_SAMPLE_BYTES = 4 << 30  # of outputs that are alive at once
_MOST_CALLS = 4096  # per sample
_MOST_TRACED_CALLS = 64  # per sample: CUPTI keeps a record of each kernel


def compare(
    paths: Iterable[str], options: list[str], names: list[str], *, rounds: int, starts: int
) -> dict[str, tuple[timing.Samples, ...]]:
    """Seconds per call of each build, round by round, by the name of the call.

    Args:
        paths: Folders, each with an installed ``mlx_norms``.
        options: The script's options, for its workers.
        rounds: Samples per build and start.
        starts: Processes per build, since memory placement differs from process to process.
    """
    taken = {name: [[] for _ in paths] for name in names}
    for _ in range(starts):
        builds = [_Build(path, options) for path in paths]
        for name in names:
            count = 0  # the first build chooses it, and the other takes the same
            for build in builds:
                count = round(build.ask(json.dumps([name, count])))
            for build in timing.turns(builds, rounds):
                build.sample(name)
        for i, build in enumerate(builds):
            for name, seconds in build.end().items():
                taken[name][i] += seconds
    return {
        name: tuple(timing.Samples(tuple(of)) for of in by_build)
        for name, by_build in taken.items()
    }


class _Build:
    """A process that measures one of the builds."""

    def __init__(self, path: str, options: list[str]) -> None:
        path = os.pathsep.join([path, *filter(None, [os.environ.get("PYTHONPATH")])])
        # malloc keeps freed pages, so that outputs need no new ones.
        environment = os.environ | conditions.KEEP_MEMORY | {"PYTHONPATH": path}
        command = [sys.executable, *sys.argv[:2], "--worker", *options]
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
        self._process = subprocess.Popen(command, env=environment, **pipes)
        self._samples: list[tuple[str, float]] = []

    def ask(self, line: str) -> float:
        self._process.stdin.write(line + "\n")
        self._process.stdin.flush()
        return float(self._process.stdout.readline())

    def sample(self, name: str) -> None:
        self._samples.append((name, self.ask(str(len(self._samples)))))

    def end(self) -> dict[str, list[float]]:
        """The seconds per call in each sample, by name: kernel times if they were traced."""
        traced = json.loads(self._process.communicate("\n")[0])
        found: dict[str, list[float]] = {}
        for i, (name, seconds) in enumerate(self._samples):
            found.setdefault(name, []).append(traced[str(i)] if traced else seconds)
        return found


def _host_clock(calls: Calls, traces: bool) -> HostClock:
    outputs = calls.prepare(1)
    calls.output_bytes = sum(a.nbytes for _, a in tree_flatten(outputs))
    calls.finish(outputs)  # also creates the inputs
    most = _SAMPLE_BYTES // calls.output_bytes
    most = max(1, min(_MOST_TRACED_CALLS if traces else _MOST_CALLS, most))
    return HostClock(calls, building=not traces, most=most)


def work(known: Mapping[str, Callable[[], Calls | timing.Timed]], traces: bool) -> None:
    """Measures what the lines of standard input ask for.

    A line ``[name, count]`` chooses a call of ``known`` and how many of it a sample has (0: find
    it), a number takes a sample under that name, and an empty line ends the process. Samples are
    the host's time of calls evaluated together, or, if traced, the kernels' time of calls one by
    one. What times itself is asked for its own time.
    """
    trace, counts = Trace() if traces else None, {}
    # Builds share a device, whose memory one alone would keep.
    mx.set_cache_limit(_SAMPLE_BYTES)
    with trace or contextlib.nullcontext():
        for line in sys.stdin:
            if line.startswith("["):
                name, count = json.loads(line)
                calls = known[name]()
                clock = _host_clock(calls, traces) if isinstance(calls, Calls) else calls
                count = count or timing.calibrate(clock, HostClock.sample_seconds)
                clock.seconds(count)
                print(count, flush=True)
            elif number := line.strip():
                counts[number] = count
                if traces:
                    of_range(trace, number, calls, count, alone=True)
                print(0 if traces else clock.seconds(count) / count, flush=True)
            else:
                break
    activity = trace.activity if trace else {}
    print(json.dumps({number: of.seconds / counts[number] for number, of in activity.items()}))
