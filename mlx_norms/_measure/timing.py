"""Times lazy MLX computations against each other: interleaved rounds, medians and quartiles.

One sample is many calls, evaluated together in batches, so that the clock's resolution and the
start of an evaluation (tens of microseconds) do not dominate. Providers take turns in every round,
so that other load on the machine affects all of them alike. providers.py has providers whose inputs
are not in the cache, and clocks.py has devices' own clocks.
"""

from __future__ import annotations

import contextlib
import gc
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

LEAST_ROUNDS = 5  # of fewer, quartiles say too little

_Name = TypeVar("_Name")


@dataclass(frozen=True)
class Samples:
    """One quantity, measured once per round, in the order of the rounds."""

    values: tuple[float, ...]

    @property
    def median(self) -> float:
        return statistics.median(self.values)

    @property
    def quartiles(self) -> tuple[float, float]:
        """The lower and the upper quartile, between which half of the samples lie."""
        if len(self.values) == 1:
            return self.values[0], self.values[0]
        lower, _, upper = statistics.quantiles(self.values, n=4, method="inclusive")
        return lower, upper

    def figures(self, factor: float = 1.0) -> tuple[float, float, float]:
        """The median and the quartiles."""
        return tuple(factor * figure for figure in (self.median, *self.quartiles))

    def spread(self, form: str, factor: float = 1.0) -> str:
        """The median, with the quartiles in parentheses."""
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
    def is_noise(self) -> bool:
        """Whether this is neither a gain nor a loss."""
        lower, upper = self.quartiles
        few = len(self.values) < LEAST_ROUNDS
        # Written so that a NaN is noise.
        return self.same or few or not (lower > 1 or upper < 1)

    def text(self, decimals: int, *, quartiles: bool = False) -> str:
        """The median, unless the ratio is noise."""
        spread = self.spread(f".{decimals}f")
        median, around = spread.split(" ", 1)
        return ("noise" if self.is_noise else median) + f" {around}" * quartiles


# For readers who see ratios beside medians.
PAIRING = (
    "A ratio is taken in each round, where providers follow one another; shown is the median of "
    "these, which is not the ratio of the medians. It is noise if 1 is between its quartiles, if "
    f"there were fewer than {LEAST_ROUNDS} rounds, or if both sides did the same."
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
    rounds: int = 9,
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
        for name in turns(calls, rounds):
            values[name].append(timed[name].seconds(counts[name]) / counts[name])
    finally:
        gc.enable()
    return {name: Samples(tuple(samples)) for name, samples in values.items()}


def _counts(timed: Mapping[str, Timed], sample_seconds: float, count: int | None) -> dict[str, int]:
    """The number of calls in a sample of each provider, which this also warms up."""
    if count:
        for each in timed.values():
            each.seconds(count)
        return dict.fromkeys(timed, count)
    counts = {name: calibrate(each, sample_seconds) for name, each in timed.items()}
    if any(each.overlap for each in timed.values()):
        counts = {name: min(max(counts.values()), timed[name].most) for name in counts}
    return counts


def turns(names: Iterable[_Name], rounds: int) -> Iterator[_Name]:
    """The order of providers: every name once per round, reversed every other round."""
    names = list(names)
    for turn in range(rounds):
        yield from names if turn % 2 == 0 else reversed(names)


def batch_size(output_bytes: int) -> int:
    """The number of calls, with outputs of this many bytes, that are evaluated together."""
    return max(1, min(_BATCH_CALLS, _BATCH_BYTES // max(output_bytes, 1)))


class Runs:
    """A function that makes a given number of calls, timed by the host's clock.

    Args:
        run: Makes the calls. Its results are freed after the clock has stopped.
        context: The context in which it runs.
        begin: Called before the clock starts.
        clock: Of the module time: also process_time, of all cores, or thread_time, which waiting
            for a device does not advance.
    """

    most, overlap = 1 << 62, False

    def __init__(
        self,
        run: Callable[[int], object],
        context: Callable[[], contextlib.AbstractContextManager] = contextlib.nullcontext,
        begin: Callable[[], object] = mx.synchronize,
        clock: str = "perf_counter",
    ) -> None:
        self._run, self._context, self._begin = run, context, begin
        self._clock = clock

    def seconds(self, count: int) -> float:
        with self._context():
            self._begin()
            clock = getattr(time, self._clock)
            start = clock()
            results = self._run(count)
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
    while (seconds := timed.seconds(count)) < sample_seconds and count < timed.most:
        # The first guess is often far too low, so grow tenfold at most.
        growth = 1.2 * sample_seconds / seconds
        count = min(int(count * min(max(growth, 1.5), 10)) + 1, timed.most)
    return count
