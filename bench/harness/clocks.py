"""The two clocks: the host's, and a GPU's own.

A GPU's is CUPTI's, by torch's profiler, which reports when a trace ends, so that the sides of
several cases are timed in one; or the slope of the host's time of evaluations over the number of
calls, where there is no torch.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

import mlx.core as mx

from mlx_norms._measure import machine, timing
from mlx_norms._measure.timing import Samples

from . import providers
from .cupti import Trace

HOST_SECONDS = 0.007  # of a sample, at least
_CPU_OUTPUTS = 256 << 20
_PAST_CACHE = 256 << 20
_IN_A_TRACE = 12  # cases, after which their lines are written


@dataclass(frozen=True)
class Time:
    """What a call of a side takes, in seconds, round by round.

    Attributes:
        method: "CUPTI", "slope", or of the host "evals" or "thread".
        samples: Of calls that run together, or as ``how`` says.
        alone: By the GPU's clock, of calls that are evaluated one by one.
        kernels: By CUPTI, their number a call.
        calls: In a sample.
    """

    method: str
    samples: Samples
    alone: Samples | None = None
    kernels: float | None = None
    calls: int | None = None


def output_budget() -> int:
    """Bytes that the outputs of calls in flight may take."""
    if mx.default_device() == mx.cpu:
        return _CPU_OUTPUTS
    return machine.memory_bytes() // 8


def host(side, how: str) -> timing.Timed:
    """A side timed by the host's clock. One that times itself is as it is.

    Args:
        how: "evals", of many calls that are evaluated together; "many", the same with building the
            graph; "one", of calls that are built and evaluated one by one; "thread", the time of
            the calling thread alone, which waiting takes none of, to build and evaluate many, after
            as many that do not count.
    """
    if not hasattr(side, "prepare"):
        return side
    options = dict(most=max(1, output_budget() // max(1, side.output_bytes)))
    options |= dict(overlap=mx.default_device() != mx.cpu)
    if how == "evals":
        return timing.Runs(side.finish, side.context, side.prepare, **options)

    def build(count: int) -> None:
        side.finish(side.prepare(count))

    def each(count: int) -> None:
        for _ in range(count):
            side.finish(side.prepare(1), alone=True)
        mx.synchronize()

    def after_some(count: int) -> int:
        build(count)
        mx.synchronize()
        return count

    if how == "thread":
        return timing.Runs(build, side.context, after_some, "thread_time", **options)
    return timing.Runs(each if how == "one" else build, side.context, **options)


def measure(
    cases: Iterable,
    how: str,
    *,
    rounds: int,
    say: Callable[[str], None] = print,
    sample_seconds: float = HOST_SECONDS,
) -> Iterator[tuple[object, dict[str, Time]]]:
    """The cases, each with the time of its sides, which take turns in every round."""
    if how == "kernels":
        cases = list(cases)
        for i in range(0, len(cases), _IN_A_TRACE):
            yield from _of_gpu(cases[i : i + _IN_A_TRACE], rounds, say)
        return
    for case in cases:
        sides = providers.able(case, case.sides(), say)
        timed = {name: _Counted(host(side, how)) for name, side in sides.items()}
        options = dict(rounds=rounds, sample_seconds=sample_seconds, count=case.count)
        method = "thread" if how == "thread" else "evals"
        found = timing.measure(timed, **options)
        yield (
            case,
            {
                name: Time(method, samples, calls=timed[name].count)
                for name, samples in found.items()
            },
        )


class _Counted:
    """Knows the number of calls of the last sample."""

    def __init__(self, timed: timing.Timed) -> None:
        self._timed, self.most, self.overlap = timed, timed.most, timed.overlap

    def seconds(self, count: int) -> float:
        self.count = count
        return self._timed.seconds(count)


def _of_gpu(cases: list, rounds: int, say: Callable[[str], None]) -> list:
    found = {}
    # What CUPTI missed is timed by the slope.
    for trace in (Trace(), None) if Trace.available() else (None,):
        pending = []
        with trace or contextlib.nullcontext():
            for i, case in enumerate(cases):
                if i not in found:
                    sides = providers.able(case, case.sides(), say)
                    count = case.count or _calls_past_cache(sides)
                    pending.append((i, _take(trace, i, sides, count, rounds)))
        for i, read in pending:
            if times := read():
                found[i] = times
    return [(case, found[i]) for i, case in enumerate(cases)]


def _calls_past_cache(sides: dict) -> int:
    """The number of calls whose outputs push those of the first call out of the cache."""
    output_bytes = max(1, *(side.output_bytes for side in sides.values()))
    return max(6, min(40, -(-_PAST_CACHE // output_bytes)))


def _take(
    trace: Trace | None, key: int, sides: dict, count: int, rounds: int
) -> Callable[[], dict[str, Time]]:
    """Make a case's calls; returns a function that gives the times once the trace has ended."""
    for side in sides.values():
        with side.context():
            side.finish(side.prepare(count if trace else 3 * count))
    if trace is None:
        slopes = {name: [] for name in sides}
        for name in timing.turns(sides, rounds):
            slopes[name].append(_slope(sides[name], count))
        times = {
            name: Time("slope", Samples(tuple(of)), calls=count) for name, of in slopes.items()
        }
        return lambda: times
    ranges = {name: [] for name in sides}
    for name in timing.turns(sides, rounds):
        pair = [f"{key}/{name}/{len(ranges[name])}/{way}" for way in ("together", "alone")]
        ranges[name].append(pair)
        for way, alone in zip(pair, (False, True), strict=True):
            with sides[name].context():
                pending = sides[name].prepare(count)
                with trace.range(way):
                    sides[name].finish(pending, alone=alone)
    return lambda: _read(trace, ranges, count)


def _read(trace: Trace, ranges: dict[str, list], count: int) -> dict[str, Time]:
    """The times of a case, empty if the trace misses some of them."""
    activity, found = trace.activity, {}
    for name, pairs in ranges.items():
        if not all(each in activity for pair in pairs for each in pair):
            return {}
        together, alone = ([activity[each] for each in way] for way in zip(*pairs, strict=True))
        seconds = [Samples(tuple(a.seconds / count for a in way)) for way in (together, alone)]
        kernels = Samples(tuple(a.kernels / count for a in together)).median
        found[name] = Time("CUPTI", *seconds, kernels, count)
    return found


def _slope(side, count: int) -> float:
    def seconds(calls: int) -> float:
        pending = side.prepare(calls)
        start = time.perf_counter()
        side.finish(pending)
        return time.perf_counter() - start

    with side.context():
        return max((seconds(3 * count) - seconds(count)) / (2 * count), 1e-9)
