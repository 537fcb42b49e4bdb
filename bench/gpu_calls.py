"""Times calls of the norms through mx.eval against mx.fast's on a GPU.

A call's time is from building the graph to the result, with many independent calls per eval.
Prints one row (in three times as many rounds), large shapes, and a grid of shapes with the configs
that take more than 1.03 times as long as the best peer. The CSV file is written during the run.
--device cpu tries the script at tiny shapes.
"""

from __future__ import annotations

import itertools
import math
import statistics

from gpu_speed import COLUMNS, DTYPES, LARGE, OPS, SHORT, about, configs, labels
from harness import clocks, providers
from harness.configs import Config
from harness.script import Script
from harness.tables import red_if, table
from mlx_norms._measure import timing

GRID = list(itertools.product((1, 32, 512, 4096, 32768), (128, 768, 4096, 8192, 16384)))
TARGET = 1.03  # of the best peer's time
ONE_ROW_TARGET = 0.6e-6  # seconds more than mx.fast; add+rms must be faster
LAYER_TARGET = 2.0  # times as fast as mx.fast, at large shapes
SAMPLE_SECONDS = 0.022  # per eval, so that its start does not count
MOST_OUTPUT_BYTES = 48 << 30  # of the calls of an eval, alive at once


class Times(dict):
    """Samples of the seconds per call, by provider."""

    @property
    def best_peer(self) -> str:
        return min(self.keys() - {"ours"}, key=lambda name: self[name].median)

    @property
    def over_best(self) -> timing.Ratio:
        return self["ours"].over(self[self.best_peer])


def measure(script: Script, section: str, config: Config, rounds: int) -> Times:
    providers.make_room()
    of_config = providers.providers(config, ("mx.fast", *script.peers))
    able = providers.able(config, of_config, script.say)
    most = max(1, MOST_OUTPUT_BYTES // config.output_bytes)
    clocked = {n: clocks.HostClock(c, building=True, most=most) for n, c in able.items()}
    goal = 1e-3 if script.tiny else SAMPLE_SECONDS
    times = Times(timing.measure(clocked, rounds=rounds, sample_seconds=goal))
    ratio = times.over_best
    of_ours = dict(best_peer=times.best_peer, over_best_peer=ratio.median)
    of_ours |= zip(("over_lower", "over_upper"), ratio.interval, strict=True)
    for name, seconds in times.items():
        us, lower, upper = seconds.figures(1e6)
        values = dict(provider=name, method="evals", us=us, us_lower=lower, us_upper=upper)
        values |= dict(gbps=config.moved / us / 1e3, calls_per_eval=clocked["ours"].calls)
        values |= dict(rounds=rounds) | (of_ours if name == "ours" else {})
        script.write(section=section, **about(config), **values)
    return times


def few(script: Script, section: str, shapes, rounds: int) -> None:
    """The times of some configs, one per line."""
    names = ("ours", "mx.fast", *script.peers)
    title = f"{section}: µs per call through mx.eval (quartiles)"
    found = table(title, ("op", "dtype", "shape"), (*names, "ours - fast", "fast/ours"))
    for config in configs(script.tiny, shapes=shapes):
        seconds = measure(script, section, config, rounds)
        ours, fast = seconds["ours"], seconds["mx.fast"]
        more, faster = ours.median - fast.median, fast.over(ours).median
        most = math.inf if config.rows > 1 else 0.0 if config.adds else ONE_ROW_TARGET
        least = (
            LAYER_TARGET if config.op == "layer" and (config.rows, config.length) in LARGE else 0.0
        )
        found.add_row(
            *labels(config),
            *(seconds[name].spread(".4g", 1e6) if name in seconds else "" for name in names),
            *(red_if(more > most, f"{more * 1e6:+.2f}"), red_if(faster < least, f"{faster:.2f}")),
        )
    script.console.print(found)


def grid(script: Script, rounds: int) -> None:
    """Ratios to the best peer, and the slow configs among them with their times."""
    of_grid = configs(script.tiny, shapes=GRID)
    times = {config: measure(script, "calls, grid", config, rounds) for config in of_grid}
    ratios = {config: of.over_best.median for config, of in times.items()}
    for op, dtype in dict.fromkeys((config.label, config.dtype) for config in times):
        of_both = (config for config in times if (config.label, config.dtype) == (op, dtype))
        group = {(config.rows, config.length): ratios[config] for config in of_both}
        rows, lengths = (sorted(set(of)) for of in zip(*group, strict=True))
        title = f"{op}, {DTYPES[dtype]}: ours over the best peer"
        found = table(title, (), ("rows", *map(str, lengths)))
        for count in rows:
            line = [group.get((count, length)) for length in lengths]
            found.add_row(str(count), *(red_if(r > TARGET, f"{r:.2f}") if r else "" for r in line))
        script.console.print(found)
    for op in OPS:
        if of_op := [ratio for config, ratio in ratios.items() if config.op == op]:
            script.say(f"{op}: median {statistics.median(of_op):.3f} of the best peer's.")
    slow = sorted((c for c in times if ratios[c] > TARGET), key=ratios.get, reverse=True)
    surely = [config for config in slow if times[config].over_best.interval[0] > TARGET]
    script.say(
        f"Median over all {len(ratios)} configs: {statistics.median(ratios.values()):.3f} (at most "
        f"{TARGET}). {len(slow)} configs are above {TARGET}, {len(surely)} of them in three "
        "quarters of the rounds:"
    )
    found = table("", ("op", "dtype", "shape", "best peer"), ("ours µs", "its µs", "ratio"))
    for config in slow:
        of = times[config]
        pair = (f"{of[name].median * 1e6:.4g}" for name in ("ours", of.best_peer))
        found.add_row(*labels(config), of.best_peer, *pair, of.over_best.spread(".3f"))
    script.console.print(found)


def main() -> None:
    script = Script(__doc__, COLUMNS, peers=True, rounds=5)
    args = script.begin()
    few(script, "calls, one row", [(1, 4096)], 3 * args.rounds)
    few(script, "calls, large", [*LARGE, SHORT], args.rounds)
    grid(script, args.rounds)
