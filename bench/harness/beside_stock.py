"""Functions of ours beside MLX's, alone or many in an mx.eval, and their lines in a file."""

from __future__ import annotations

from collections.abc import Mapping

import mlx.core as mx

from mlx_norms._measure import timing

from . import clocks
from .providers import Calls
from .script import Script

# Of a line, after what it is of.
COLUMNS = ("provider", "us", "us_lower", "us_upper", "stock_over_ours", "lower", "upper")


def alone(calls: Calls) -> timing.Runs:
    """Calls that are evaluated one by one."""

    def run(count: int) -> None:
        for _ in range(count):
            mx.eval(calls.prepare(1))
        mx.synchronize()

    return timing.Runs(run)


def measure(
    script: Script, calls: Mapping[str, Calls], how: str, rounds: int
) -> dict[str, timing.Samples]:
    """The time from building the graph to the result, of "one" in an mx.eval or of "many"."""
    clocked = {
        name: alone(each) if how == "one" else clocks.HostClock(each, building=True)
        for name, each in calls.items()
    }
    goal = 1e-3 if script.tiny else clocks.HOST_SECONDS
    return timing.measure(clocked, rounds=rounds, sample_seconds=goal)


def write(script: Script, seconds: Mapping[str, timing.Samples], *about: object) -> None:
    """Writes a line for each provider, "ours" with the ratio of "stock"."""
    gain = seconds["stock"].over(seconds["ours"])
    for name, samples in seconds.items():
        us = [1e6 * value for value in (samples.median, *samples.quartiles)]
        ratio = [gain.median, *gain.quartiles] if name == "ours" else ["", "", ""]
        script.write(*about, name, *us, *ratio)
