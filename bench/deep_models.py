"""Times what patching adds to models as deep as published ones, with tiny widths: all of mlx_lm's.

    python bench deep_models [MODEL ...]

Each time is the CPU's for a prefill and a decode step: built on the host and dropped, or built and
evaluated. "patched" is over stock, round by round, the worst model first; "stock again" tells what
a ratio is worth. What a walk through the graph costs shows here, where kernels have little to do.
"""

from __future__ import annotations

import itertools

import mlx.core as mx
import mlx.nn as nn

from harness import deep_models
from harness.script import Script
from harness.sides import BESIDE_STOCK
from harness.tables import red_if, table
from mlx_norms._measure.models import new_cache
from mlx_norms._measure.timing import Runs, Samples, measure
from mlx_norms.commands import _tiny_models

SIDES = ("stock", "stock again", "patched")
PARTS = ("build", "build and eval")
MOST = 2  # times stock's
COLUMNS = ("model", "layers", "part", "side", "ms", "over_stock", "lower", "upper")


def steps(model: nn.Module, inputs: list[mx.array], part: str, side: str) -> Runs:
    """Prefills and decode steps; their time is the process' on all cores, not the clock's."""

    def run(count: int) -> list:
        logits = []
        for _ in range(count):
            cache = new_cache(model)
            logits.append([model(tokens, cache=cache) for tokens in inputs])
        if part != "build":
            mx.eval(logits)
        return logits

    return Runs(run, BESIDE_STOCK[side], clock="process_time")


def measured(name: str, rounds: int) -> dict[tuple[str, str], Samples]:
    model = deep_models.build(name)
    tokens = mx.random.randint(0, _tiny_models.vocabulary(name), (1, 9))
    inputs = mx.split(tokens, [8], axis=1)
    mx.eval(inputs)
    sides = {each: steps(model, inputs, *each) for each in itertools.product(PARTS, SIDES)}
    return measure(sides, rounds=rounds, count=1)


def main() -> None:
    script = Script(__doc__, COLUMNS, device="cpu", rounds=9)
    script.parser.add_argument("models", metavar="MODEL", nargs="*", help="(default: all)")
    args = script.begin()
    rows = []
    for name in script.tracked(args.models or _tiny_models.names()):
        samples = measured(name, args.rounds)
        row = {}
        for (part, side), each in samples.items():
            row[part, side] = ratio = each.over(samples[part, "stock"])
            figures = (1e3 * each.median, *ratio.figures())
            script.write(name, deep_models.layers(name), part, side, *figures)
        ms = [f"{1e3 * samples[part, 'stock'].median:.1f}" for part in PARTS]
        rows.append((max(row[part, "patched"].median for part in PARTS), name, ms, row))
        mx.clear_cache()
    headings = [each for part in PARTS for each in (f"{part}: stock, ms", *SIDES[1:])]
    found = table("Over stock, median (quartiles)", ("model", "layers"), headings)
    for _, name, ms, row in sorted(rows, reverse=True, key=lambda each: each[0]):
        cells = []
        for part, each_ms in zip(PARTS, ms, strict=True):
            again, patched = (row[part, side] for side in SIDES[1:])
            ratio = red_if(patched.median > MOST, patched.spread(".2f"))
            cells += [each_ms, f"{again.median:.2f}", ratio]
        found.add_row(name, str(deep_models.layers(name)), *cells)
    script.console.print(found)
