"""Times lazy MLX computations against each other: interleaved rounds, medians and quartiles.

One sample is many calls, evaluated together in batches, so that neither the clock nor the start of
an evaluation (tens of microseconds) is what gets measured. Contestants take turns in every round,
so that whatever else the machine does falls on all of them.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import TypeVar

import mlx.core as mx
from mlx.utils import tree_flatten

# Outputs of a batch are alive together: few enough calls that they stay within this much memory.
_BATCH_BYTES = 32 << 20
_BATCH_CALLS = 256

_Name = TypeVar("_Name")


@dataclass(frozen=True)
class Samples:
    """The same quantity measured once a round, in the order of the rounds."""

    values: tuple[float, ...]

    @property
    def median(self) -> float:
        return statistics.median(self.values)

    @property
    def quartiles(self) -> tuple[float, float]:
        """The lower and the upper quartile: half of the samples lie between them."""
        if len(self.values) == 1:
            return self.values[0], self.values[0]
        lower, _, upper = statistics.quantiles(self.values, n=4, method="inclusive")
        return lower, upper

    def over(self, other: Samples) -> Samples:
        """The ratio of self to ``other`` round by round, for samples of one :func:`measure`."""
        pairs = zip(self.values, other.values, strict=True)
        return Samples(tuple(mine / its for mine, its in pairs))


def measure(
    calls: Mapping[str, Callable[[], object]], *, rounds: int = 9, sample_seconds: float = 0.02
) -> dict[str, Samples]:
    """Measure the seconds a call of each contestant takes, all of them in every round.

    A call's time covers what a user pays for: building the graph, evaluating it and freeing the
    results. Each contestant is warmed up while the number of calls in a sample is found.

    Args:
        calls: Contestants by name. Each returns the arrays to evaluate, in any nesting of lists,
            tuples and dicts, unevaluated and newly made at every call.
        rounds: Samples of each contestant. The order within a round is reversed every other round.
        sample_seconds: The least time that one sample takes.

    Returns:
        dict: The :class:`Samples` of each contestant, in seconds a call.
    """
    if rounds < 1:
        raise ValueError(f"[measure] rounds must be at least 1, got {rounds}.")
    batches = {name: _batch_size(call) for name, call in calls.items()}
    counts = {name: _calibrate(call, batches[name], sample_seconds) for name, call in calls.items()}
    values: dict[str, list[float]] = {name: [] for name in calls}
    for name in turns(calls, rounds):
        count = counts[name]
        values[name].append(_time(calls[name], count, batches[name]) / count)
    return {name: Samples(tuple(samples)) for name, samples in values.items()}


def turns(names: Iterable[_Name], rounds: int) -> Iterator[_Name]:
    """Whose turn it is: every name once a round, in reversed order every other round."""
    names = list(names)
    for turn in range(rounds):
        yield from names if turn % 2 == 0 else reversed(names)


def _batch_size(call: Callable[[], object]) -> int:
    """How many calls are evaluated together."""
    outputs = call()
    mx.eval(outputs)
    size = sum(leaf.nbytes for _, leaf in tree_flatten(outputs))
    return max(1, min(_BATCH_CALLS, _BATCH_BYTES // max(size, 1)))


def _calibrate(call: Callable[[], object], batch: int, sample_seconds: float) -> int:
    """How many calls make a sample."""
    count = 1
    while (seconds := _time(call, count, batch)) < sample_seconds:
        # A first guess is often far too slow, so grow by no more than tenfold at a time.
        growth = 1.2 * sample_seconds / seconds
        count = int(count * min(max(growth, 1.5), 10)) + 1
    return count


def _time(call: Callable[[], object], count: int, batch: int) -> float:
    start = time.perf_counter()
    for first in range(0, count, batch):
        mx.eval([call() for _ in range(min(batch, count - first))])
    return time.perf_counter() - start
