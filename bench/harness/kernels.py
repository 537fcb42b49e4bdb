"""How long the device is busy per call: by CUPTI, or by the slope of eval time over calls.

CUPTI reports when a trace ends, so the providers of many configs are timed in one trace.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Hashable, Iterable
from dataclasses import dataclass

from mlx_norms._measure import timing
from mlx_norms._measure.timing import Samples

from . import providers
from .cupti import Trace

PAST_CACHE = 256 << 20


@dataclass(frozen=True)
class KernelTime:
    """Seconds of device time per call, round by round.

    Attributes:
        method: "CUPTI", or "evals" for the slope.
        together: While independent calls run together.
        alone: For calls that are evaluated one by one.
        kernels: The number of kernels per call.
    """

    method: str
    together: Samples
    alone: Samples | None = None
    kernels: float | None = None


def calls_past_cache(config) -> int:
    """The number of calls whose outputs push those of the first call out of the cache."""
    return max(6, min(40, -(-PAST_CACHE // config.output_bytes)))


def measure(
    configs: Iterable[Hashable],
    of_config: Callable[[Hashable], dict],
    calls: Callable[[Hashable], int],
    *,
    rounds: int = 3,
    say: Callable[[str], None] = print,
) -> dict[Hashable, dict[str, KernelTime]]:
    """The times of each config's providers, which take turns in every round.

    Args:
        of_config: Returns a config's providers by name.
        calls: Returns the number of calls in a sample of a config.
        say: Prints a line for each peer that cannot run a config.
    """
    configs, found = list(configs), {}
    # Configs that CUPTI missed are timed by evals.
    for trace in (Trace(), None) if Trace.available() else (None,):
        pending = []
        with trace or contextlib.nullcontext():
            for config in configs:
                if config not in found:
                    providers.make_room()
                    able = providers.able(config, of_config(config), say)
                    pending.append(
                        (config, _take(trace, len(pending), able, calls(config), rounds))
                    )
        for config, read in pending:
            if times := read():
                found[config] = times
    return {config: found[config] for config in configs}


def _take(
    trace: Trace | None, key: int, able: dict, count: int, rounds: int
) -> Callable[[], dict[str, KernelTime]]:
    """Make a config's calls; returns a function that gives the times once the trace has ended."""
    for provider in able.values():
        provider.finish(provider.prepare(count if trace else 3 * count))
    if trace is None:
        slopes = {name: [] for name in able}
        for name in timing.turns(able, rounds):
            slopes[name].append(_slope(able[name], count))
        times = {name: KernelTime("evals", Samples(tuple(of))) for name, of in slopes.items()}
        return lambda: times
    ranges = {name: [] for name in able}
    for name in timing.turns(able, rounds):
        pair = [f"{key}/{name}/{len(ranges[name])}/{way}" for way in ("together", "alone")]
        ranges[name].append(pair)
        for way, alone in zip(pair, (False, True), strict=True):
            of_range(trace, way, able[name], count, alone=alone)
    return lambda: _read(trace, ranges, count)


def of_range(trace: Trace, name: str, provider, count: int, *, alone: bool) -> None:
    """Make calls in a range of a trace, together or one by one; their inputs are made before it."""
    pending = provider.prepare(count)
    with trace.range(name):
        provider.finish(pending, alone=alone)


def _read(trace: Trace, ranges: dict[str, list], count: int) -> dict[str, KernelTime]:
    """The times of a config, empty if the trace misses some of them."""
    activity, found = trace.activity, {}
    for name, pairs in ranges.items():
        if not all(each in activity for pair in pairs for each in pair):
            return {}
        together, alone = ([activity[each] for each in way] for way in zip(*pairs, strict=True))
        seconds = (Samples(tuple(a.seconds / count for a in way)) for way in (together, alone))
        kernels = Samples(tuple(a.kernels / count for a in together)).median
        found[name] = KernelTime("CUPTI", *seconds, kernels)
    return found


def _slope(provider, count: int) -> float:
    def seconds(calls: int) -> float:
        pending = provider.prepare(calls)
        start = time.perf_counter()
        provider.finish(pending)
        return time.perf_counter() - start

    return max((seconds(3 * count) - seconds(count)) / (2 * count), 1e-9)
