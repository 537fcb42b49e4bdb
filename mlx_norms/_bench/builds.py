"""Builds of this package that take turns, each in processes of its own.

A script runs itself once for each build: with ``--worker`` it calls :func:`work` there.
"""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterable, Mapping

from mlx.utils import tree_flatten

from . import machine, timing
from .clocks import HostClock
from .cupti import Trace
from .kernels import of_range
from .providers import Calls

_SAMPLE_BYTES = 4 << 30  # of outputs that are alive together
_MOST_CALLS = 4096  # of a sample
_MOST_TRACED_CALLS = 64  # CUPTI keeps a record of each kernel


def compare(
    paths: Iterable[str], options: list[str], names: list[str], *, rounds: int, starts: int
) -> dict[str, tuple[timing.Samples, ...]]:
    """Seconds of a call of each build by the names of calls, round by round.

    Args:
        paths: Folders that hold an installed ``mlx_norms`` each.
        options: Of the script, for its workers.
        rounds: Samples of each build a start.
        starts: Processes of each build: where memory lies is one process's luck.
    """
    taken = {name: [[] for _ in paths] for name in names}
    for _ in range(starts):
        builds = [_Build(path, options) for path in paths]
        for name in names:
            count = 0  # of the first build, and then as many of the other
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
    """A process that measures with one of the builds."""

    def __init__(self, path: str, options: list[str]) -> None:
        path = os.pathsep.join([path, *filter(None, [os.environ.get("PYTHONPATH")])])
        # Pages are kept, not made anew for each output.
        environment = os.environ | machine.KEEP_MEMORY | {"PYTHONPATH": path}
        command = [sys.executable, sys.argv[0], "--worker", *options]
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
        """The seconds of a call in each sample, by name: the kernels' where they were traced."""
        traced = json.loads(self._process.communicate("\n")[0])
        found: dict[str, list[float]] = {}
        for i, (name, seconds) in enumerate(self._samples):
            found.setdefault(name, []).append(traced[str(i)] if traced else seconds)
        return found


def work(known: Mapping[str, Callable[[], Calls]], traces: bool) -> None:
    """Measures what the lines of the standard input ask for: a name of what is known and how many
    calls, or a sample of it, by its number; an empty one ends it.

    Samples are the host's time of calls together, or with traces the kernels' one by one.
    """
    trace, counts = Trace() if traces else None, {}
    with trace or contextlib.nullcontext():
        for line in sys.stdin:
            if line.startswith("["):
                name, count = json.loads(line)
                calls = known[name]()
                outputs = calls.prepare(1)
                calls.output_bytes = sum(a.nbytes for _, a in tree_flatten(outputs))
                calls.finish(outputs)  # makes the inputs, too
                most = _SAMPLE_BYTES // calls.output_bytes
                most = max(1, min(_MOST_TRACED_CALLS if traces else _MOST_CALLS, most))
                clock = HostClock(calls, building=not traces, most=most)
                count = count or timing.calibrate(clock, clock.sample_seconds)
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
