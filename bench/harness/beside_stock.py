"""Sides that take turns, alone or many in an mx.eval, and a report of their times."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

import mlx.core as mx

from mlx_norms._measure import timing
from mlx_norms._measure.timing import Samples

from . import clocks
from .providers import Calls, copies, make_room, sets_needed
from .script import Script
from .tables import red_if, table

# Of a line, after what it is of.
COLUMNS = ("provider", "us", "us_lower", "us_upper", "stock_over_ours", "lower", "upper")


def alone(calls: Calls) -> timing.Runs:
    """Calls that are evaluated one by one."""

    def run(count: int) -> None:
        for _ in range(count):
            mx.eval(calls.prepare(1))
        mx.synchronize()

    return timing.Runs(run)


def calls(
    arrays: list[mx.array], functions: Mapping[str, Callable], output_bytes: int
) -> dict[str, Calls]:
    """Calls of functions of these arrays, of which there are so many that none is in the cache."""
    make_room()
    sets = copies(arrays, sets_needed(sum(array.nbytes for array in arrays)))
    return {name: Calls(f, sets, output_bytes=output_bytes) for name, f in functions.items()}


def measure(
    script: Script, calls: Mapping[str, Calls], how: str, rounds: int
) -> dict[str, Samples]:
    """The time from building the graph to the result, of "one" in an mx.eval or of "many"."""
    clocked = {
        name: alone(each) if how == "one" else clocks.HostClock(each, building=True)
        for name, each in calls.items()
    }
    goal = 1e-3 if script.tiny else clocks.HOST_SECONDS
    return timing.measure(clocked, rounds=rounds, sample_seconds=goal)


class Report:
    """A table of the times of sides, and lines of them in the script's file.

    Args:
        labels: The headings of what a row is of.
        sides: Those whose times are shown.
        over: Those whose time over ours is shown, stock first.
        ours: The side whose line has the ratio of stock.
    """

    def __init__(
        self,
        script: Script,
        title: str,
        labels: Iterable[str],
        sides: Iterable[str] = ("ours", "stock"),
        over: Iterable[str] = ("stock",),
        *,
        ours: str = "ours",
        form: str = ".4g",
    ) -> None:
        self._script, self._sides, self._over = script, tuple(sides), tuple(over)
        self._ours, self._form = ours, form
        self._table = table(title, labels, (*sides, *(f"{side} / {ours}" for side in over)))

    def add(
        self,
        labels: Iterable[str],
        seconds: Mapping[str, Samples],
        *about: object,
        least: Mapping[str, float] = {"stock": 1.0},
    ) -> None:
        """A row, red where a ratio is below ``least``, and lines that begin with ``about``."""
        ratios = {side: seconds[side].over(seconds[self._ours]) for side in self._over}
        self._table.add_row(
            *labels,
            *(seconds[side].spread(self._form, 1e6) for side in self._sides),
            *(red_if(r.median < least.get(side, 0), r.spread(".2f")) for side, r in ratios.items()),
        )
        for side, samples in seconds.items():
            gain = ratios["stock"].figures() if side == self._ours else ("", "", "")
            self._script.write(*about, side, *samples.figures(1e6), *gain)

    def print(self) -> None:
        self._script.console.print(self._table)
