"""Times a decode step of small models, which wait for the host, stock against patched.

A few steps follow each other without waiting for the device, as in mlx_lm, after some that do not
count. "build" and "eval" are the calling thread's CPU time to build a step's graph and to evaluate
it, "wall" is a step's time. The sides take turns: stock's time over a side's, the median over the
rounds (quartiles). "stock again" is stock a second time, which tells what a difference is worth.

The models are mlx_lm's with random weights. --device cpu tries the script with tiny ones.
"""

from __future__ import annotations

import sys
import time

import mlx.core as mx
import mlx.nn as nn

from mlx_norms._bench import llama, models, timing
from mlx_norms._bench.script import Script
from mlx_norms._bench.sides import BESIDE_STOCK, CONTEXTS
from mlx_norms._bench.tables import red_if, table

MODELS = ("llama-0.6B", "qwen3-0.6B")
PROMPT, BEFORE, STEPS = 64, 4, 6
SIDES = BESIDE_STOCK | {"projections": CONTEXTS["projections"]}
PARTS = ("build", "eval", "wall")
COLUMNS = ("model", "format", "rows", "side", "part", "us", "lower", "upper")
COLUMNS += ("stock_over_side", "ratio_lower", "ratio_upper", "source")


class Steps:
    """Decode steps of ``rows`` tokens of one sequence."""

    def __init__(self, model: nn.Module, rows: int) -> None:
        self._model = model
        token, self._cache = models.prefill(model, mx.arange(PROMPT))
        self._tokens = mx.repeat(token, rows)
        mx.eval(self._tokens)

    def _make(self, count: int) -> tuple[float, float]:
        build = evaluate = 0.0
        tokens = self._tokens
        for _ in range(count):
            start = time.thread_time()
            tokens = models.step(self._model, tokens, self._cache)
            built = time.thread_time()
            mx.async_eval(tokens)
            build += built - start
            evaluate += time.thread_time() - built
        mx.synchronize()
        return build, evaluate

    def seconds(self) -> dict[str, float]:
        """Those of a step, by part."""
        self._make(BEFORE)
        start = time.perf_counter()
        build, evaluate = self._make(STEPS)
        seconds = build, evaluate, time.perf_counter() - start
        models.trim(self._cache, (BEFORE + STEPS) * self._tokens.size)
        return {part: each / STEPS for part, each in zip(PARTS, seconds, strict=True)}


def measure(steps: Steps, rounds: int) -> dict[tuple[str, str], timing.Samples]:
    """The samples by side and part."""
    found = {(side, part): [] for side in SIDES for part in PARTS}
    for side in timing.turns(SIDES, rounds):
        with SIDES[side]():
            for part, seconds in steps.seconds().items():
                found[side, part].append(seconds)
    return {key: timing.Samples(tuple(values)) for key, values in found.items()}


def main() -> int:
    script = Script(__doc__, COLUMNS, rounds=41)
    script.parser.add_argument("--rows", default="1,8", help="numbers of rows of a step")
    args = script.begin()
    headings = ("build", "eval", "wall, µs", "stock over it: wall")
    found = table("median (quartiles)", ("step", "side"), headings)
    for name in MODELS:
        shapes = llama.shapes_of(name, tiny=script.tiny)
        for form in ("bf16", "4-bit"):
            mx.random.seed(0)
            model, source = llama.build(shapes, llama.FORMATS[form])
            for rows in map(int, args.rows.split(",")):
                samples = measure(Steps(model, rows), args.rounds)
                for side in SIDES:
                    for part in PARTS:
                        each = samples[side, part]
                        ratio = samples["stock", part].over(each)
                        us = (1e6 * value for value in (each.median, *each.quartiles))
                        ratios = (ratio.median, *ratio.quartiles)
                        script.write(name, form, rows, side, part, *us, *ratios, source)
                    us = (f"{1e6 * samples[side, part].median:.0f}" for part in PARTS)
                    over = "" if side == "stock" else red_if(ratio.median < 1, ratio.spread(".3f"))
                    found.add_row(f"{name}, {form}, {rows}", side, *us, over)
            del model
            mx.clear_cache()
    script.console.print(found)
    return 0


if __name__ == "__main__":
    sys.exit(main())
