"""Times lazy MLX computations against each other: interleaved rounds, medians and intervals.

One sample is many calls, evaluated together in batches, so that the clock's resolution and the
start of an evaluation (tens of microseconds) do not dominate. Providers take turns in every round,
so that other load on the machine affects all of them alike. bench/harness has providers whose
inputs are not in the cache, and a GPU's own clock.
"""

from __future__ import annotations

import contextlib
import functools
import gc
import math
import statistics
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Protocol, TypeVar

import mlx.core as mx
from mlx.utils import tree_flatten

# The outputs of a batch are alive together; this bounds them, and so the calls per batch.
_BATCH_BYTES = 32 << 20
_BATCH_CALLS = 256
_NEAR = 4  # times as many calls

ROUNDS = 15  # the least that commands take
_OUTSIDE = 0.05  # the most of the medians that may lie outside of an interval

_Name = TypeVar("_Name")


@functools.cache
def rank(count: int) -> int:
    """Which of the smallest and of the largest of ``count`` samples bound their interval, from 1.

    Each sample is below the true median with a probability of a half, so how many are is binomial;
    the interval holds the median in at least 95 % of the cases. 0 if even the extremes do not.
    """
    outside = 0.0
    for below in range(count + 1):
        outside += 2 * math.comb(count, below) / 2**count
        if outside > _OUTSIDE:
            return below
    return 0


@dataclass(frozen=True)
class Samples:
    """One quantity, measured once per round, in the order of the rounds."""

    values: tuple[float, ...]

    @property
    def median(self) -> float:
        return statistics.median(self.values)

    @property
    def interval(self) -> tuple[float, float]:
        """The order statistics around the median by :func:`rank`; of few samples the extremes."""
        ordered, place = sorted(self.values), max(rank(len(self.values)), 1)
        return ordered[place - 1], ordered[-place]

    def figures(self, factor: float = 1.0) -> tuple[float, float, float]:
        """The median and the interval."""
        return tuple(factor * figure for figure in (self.median, *self.interval))

    def spread(self, form: str, factor: float = 1.0) -> str:
        """The median, with the interval in parentheses."""
        return "{} ({} to {})".format(*(format(figure, form) for figure in self.figures(factor)))

    def over(self, other: Samples) -> Ratio:
        """The ratio of self to ``other``, round by round, for samples of one :func:`measure`."""
        pairs = zip(self.values, other.values, strict=True)
        return Ratio(tuple(mine / its for mine, its in pairs), self.median / other.median)


@dataclass(frozen=True)
class Ratio(Samples):
    """The ratio of two providers in each round.

    Attributes:
        of_medians: The ratio of their medians, each over all rounds.
        same: Whether both did the same, so that any difference is chance.
    """

    of_medians: float
    same: bool = False

    @property
    def differs(self) -> bool:
        """Whether one was seen to be faster."""
        lower, upper = self.interval
        # Written so that a NaN is no difference.
        return not self.same and rank(len(self.values)) > 0 and (lower > 1 or upper < 1)

    def text(self, decimals: int, *, interval: bool = False) -> str:
        """The median, unless no difference was seen."""
        median, around = self.spread(f".{decimals}f").split(" ", 1)
        return (median if self.differs else SAME) + f" {around}" * interval


SAME = "no difference seen"
# For readers who see ratios beside medians.
PAIRING = (
    "A ratio is taken in each round, where providers follow one another; shown is the median of "
    "these, which is not the ratio of the medians. In parentheses are the order statistics between "
    "which the true median lies with a probability of 95 % or more, as the 4th and the 12th of 15. "
    f"Where 1 is between them, or both sides did the same, there is {SAME}."
)


class Timed(Protocol):
    """An object that times its own calls, with any clock and any inputs."""

    most: int  # the largest number of calls in a sample
    overlap: bool  # whether calls of a sample run at once, so that their number matters

    def seconds(self, count: int) -> float:
        """Make ``count`` calls and return the time they took together."""


def measure(
    calls: Mapping[str, Callable[[], object] | Timed],
    *,
    rounds: int = ROUNDS,
    sample_seconds: float = 0.02,
    count: int | None = None,
) -> dict[str, Samples]:
    """Measure the seconds per call of each provider, all of them in every round.

    A function's time covers what a user pays for: building the graph, evaluating it and freeing the
    results. Each provider is warmed up while the number of calls in a sample is determined.
    Python's garbage is collected before and after.

    Args:
        calls: Providers by name: :class:`Timed` ones, or functions. A function returns the arrays
            to evaluate, in nested lists, tuples and dicts, unevaluated and newly made at every
            call.
        rounds: Samples per provider. The order within a round is reversed every other round.
        sample_seconds: The minimum time of one sample.
        count: Calls in a sample, regardless of ``sample_seconds``.

    Returns:
        dict: The :class:`Samples` of each provider, in seconds per call.
    """
    if rounds < 1:
        raise ValueError(f"[measure] rounds must be at least 1, got {rounds}.")
    timed = {name: evals(call) if callable(call) else call for name, call in calls.items()}
    values: dict[str, list[float]] = {name: [] for name in calls}
    gc.collect()
    gc.disable()
    try:
        counts = _counts(timed, sample_seconds, count)
        for name, each in timed.items():
            each.seconds(counts[name])  # a GPU makes a graph for each number of calls
        for name in turns(calls, rounds):
            values[name].append(timed[name].seconds(counts[name]) / counts[name])
    finally:
        gc.enable()
    return {name: Samples(tuple(samples)) for name, samples in values.items()}


def _counts(timed: Mapping[str, Timed], sample_seconds: float, count: int | None) -> dict[str, int]:
    """The number of calls in a sample of each provider."""
    if count:
        return dict.fromkeys(timed, count)
    counts = {name: calibrate(each, sample_seconds) for name, each in timed.items()}
    overlap = any(each.overlap for each in timed.values())

    def near(own: int) -> int:
        # Sides about as fast make as many calls: other numbers of calls are another measurement.
        return max(count for count in counts.values() if overlap or count <= _NEAR * own)

    return {name: min(near(own), timed[name].most) for name, own in counts.items()}


def turns(names: Iterable[_Name], rounds: int) -> Iterator[_Name]:
    """The order of providers: every name once per round, reversed every other round."""
    names = list(names)
    for turn in range(rounds):
        yield from names if turn % 2 == 0 else reversed(names)


def batch_size(output_bytes: int) -> int:
    """The number of calls, with outputs of this many bytes, that are evaluated together."""
    return max(1, min(_BATCH_CALLS, _BATCH_BYTES // max(output_bytes, 1)))


def _wait(count: int) -> int:
    mx.synchronize()
    return count


class Runs:
    """A function that makes calls, timed by the host's clock.

    Args:
        run: Makes the calls that ``prepare`` returned. Its results are freed after the clock has
            stopped.
        context: The context in which it is all done.
        prepare: Called before the clock starts, with the number of calls; by default it returns
            that number, when the device has ended.
        clock: Of the module time: also process_time, of all cores, or thread_time, which waiting
            for a device does not advance.
        most: The largest number of calls in a sample.
        overlap: Whether calls of a sample run at once, so that their number matters.
    """

    def __init__(
        self,
        run: Callable[[object], object],
        context: Callable[[], contextlib.AbstractContextManager] = contextlib.nullcontext,
        prepare: Callable[[int], object] = _wait,
        clock: str = "perf_counter",
        *,
        most: int = 1 << 62,
        overlap: bool = False,
    ) -> None:
        self._run, self._context, self._prepare = run, context, prepare
        self._clock = clock
        self.most, self.overlap = most, overlap

    def seconds(self, count: int) -> float:
        with self._context():
            prepared = self._prepare(count)
            clock = getattr(time, self._clock)
            start = clock()
            results = self._run(prepared)
            seconds = clock() - start
        del results
        return seconds


def evals(call: Callable[[], object]) -> Runs:
    """A function's calls, built and evaluated a batch at a time."""
    outputs = call()
    mx.eval(outputs)
    batch = batch_size(sum(leaf.nbytes for _, leaf in tree_flatten(outputs)))

    def run(count: int) -> None:
        for first in range(0, count, batch):
            mx.eval([call() for _ in range(min(batch, count - first))])

    return Runs(run)


def calibrate(timed: Timed, sample_seconds: float) -> int:
    """The number of calls in a sample."""
    count = 1
    timed.seconds(count)  # what is loaded or compiled first would make a sample too short
    while count < timed.most:
        # The shorter of two: of one that was disturbed all samples would be too short.
        seconds = min(timed.seconds(count), timed.seconds(count))
        if seconds >= sample_seconds:
            break
        # The first guess is often far too low, so grow tenfold at most.
        growth = 1.2 * sample_seconds / seconds
        count = min(int(count * min(max(growth, 1.5), 10)) + 1, timed.most)
    return count
