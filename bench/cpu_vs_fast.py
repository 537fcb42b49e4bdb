"""Times every norm against mx.fast on the CPU, forward and backward, at the shapes of the tests.

Forward is the op as called (for add+norm, against mx.fast's norm of x + residual); vjp is the
gradient of every input from given cotangents.

Prints the time of mx.fast over ours for every config: above 1, ours is faster. If ours did not win
at least three quarters of the rounds, the config is measured again, for longer, and that result
counts: it is slower if ours lost three quarters of the rounds.

"of copy" is the time in which MLX reads and writes the same number of bytes without computing
(mx.abs of float32, half of the bytes in and half out) over our time, each tensor counted once.

The script restarts itself with glibc's malloc set to keep freed memory (machine.py says why);
--default-malloc measures without that.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass

import mlx.core as mx

from harness.configs import DTYPES, Config
from harness.providers import functions
from harness.script import Script
from harness.tables import red_if, table
from mlx_norms._measure import timing

NORMS = ("rms", "layer", "add_rms", "add_layer")
EDGES = [32, 64, 128, 256, 512, 1024, 4096, 8192]
LENGTHS = [1, 2, *(edge + off for edge in EDGES for off in (-1, 0, 1)), 65536]
ROWS = [1, 3, 513]
QUICK_LENGTHS = [1, 33, 1023, 4096]
QUICK_ROWS = [3, 513]
MOST_ROWS_UP_TO = 8193  # longer rows are timed with fewer rows
WORST = 20

COLUMNS = ["op", "dtype", "rows", "length", "fast_us", "ours_us", "copy_us"]
COLUMNS += ["fast_over_ours", "lower_quartile", "upper_quartile", "of_copy", "rounds"]


@dataclass(frozen=True)
class Result:
    config: Config
    seconds: dict[str, timing.Samples]  # per call, for each provider
    speedup: timing.Ratio  # fast's time over ours
    slower: bool

    @property
    def text(self) -> str:
        return red_if(self.slower, f"{self.speedup.median:.2f}")

    @property
    def of_copy(self) -> float:
        return self.seconds["copy"].over(self.seconds["ours"]).median


def measure(config: Config) -> Result:
    """Measure a config, and again, for longer, if ours did not win three quarters of the rounds."""
    floats = mx.random.normal((-(-config.compulsory // 8),))
    mx.eval(floats)
    calls = functions(config) | {"copy": lambda: mx.abs(floats)}
    for rounds, sample_seconds in ((5, 0.005), (20, 0.01)):
        seconds = timing.measure(calls, rounds=rounds, sample_seconds=sample_seconds)
        speedup = seconds["mx.fast"].over(seconds["ours"])
        if speedup.interval[0] >= 1:
            break
    return Result(config, seconds, speedup, speedup.interval[1] < 1)


def configs(lengths: list[int], rows: list[int]) -> list[Config]:
    grid = itertools.product(NORMS, (False, True), DTYPES, lengths, rows)
    return [
        Config(op, dtype, count, length, backward)
        for op, backward, dtype, length, count in grid
        if length <= MOST_ROWS_UP_TO or count < max(ROWS)
    ]


def ratio_tables(results: list[Result]) -> Iterator:
    """A table of ratios per op and dtype, by row length and number of rows."""
    for (op, dtype), group in itertools.groupby(
        results, key=lambda r: (r.config.name, r.config.dtype)
    ):
        by_shape = {(result.config.length, result.config.rows): result for result in group}
        lengths, rows = (sorted(set(of)) for of in zip(*by_shape, strict=True))
        headings = [f"{what}, {count} rows" for what in ("fast/ours", "of copy") for count in rows]
        found = table(f"{op}, {dtype}", (), ("length", *headings))
        for length in lengths:
            line = [by_shape.get((length, count)) for count in rows]
            ratios = (result.text if result else "" for result in line)
            shares = (f"{result.of_copy:.0%}" if result else "" for result in line)
            found.add_row(str(length), *ratios, *shares)
        yield found


def worst_table(results: list[Result]):
    numbers = ("rows", "length", "fast µs", "ours µs", "fast/ours", "quartiles", "of copy")
    found = table("Worst configs", ("op", "dtype"), numbers)
    for result in sorted(results, key=lambda result: result.speedup.median)[:WORST]:
        config = result.config
        us = (f"{result.seconds[of].median * 1e6:.2f}" for of in ("mx.fast", "ours"))
        us = (*us, result.text, "{:.2f}-{:.2f}".format(*result.speedup.interval))
        shape = (str(config.rows), str(config.length))
        found.add_row(config.name, config.dtype, *shape, *us, f"{result.of_copy:.0%}")
    return found


def main() -> None:
    script = Script(__doc__, COLUMNS, device="cpu")
    quick = "fewer shapes, in about a minute on two cores"
    script.parser.add_argument("--quick", action="store_true", help=quick)
    args = script.begin()
    todo = configs(QUICK_LENGTHS, QUICK_ROWS) if args.quick else configs(LENGTHS, ROWS)
    results = [measure(config) for config in script.tracked(todo)]
    for found in (*ratio_tables(results), worst_table(results)):
        script.console.print(found)
    for result in results:
        config, seconds = result.config, result.seconds
        us = (seconds[of].median * 1e6 for of in ("mx.fast", "ours", "copy"))
        ratios = (result.speedup.median, *result.speedup.interval, result.of_copy)
        about = (config.name, config.dtype, config.rows, config.length)
        script.write(*about, *us, *ratios, len(seconds["ours"].values))
    slower = sum(result.slower for result in results)
    script.say(f"{slower} of {len(results)} configs are slower than mx.fast.")
