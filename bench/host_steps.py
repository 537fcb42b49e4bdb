"""Times a decode step of a language model, stock against patched, and its host's part.

A few steps follow each other without waiting for the device, as in mlx_lm, after some that do not
count. "build" and "eval" are the calling thread's CPU time to build a step's graph and to evaluate
it, "wall" is a step's time. The sides take turns: stock's time over a side's, the median over the
rounds (quartiles). "stock again" is stock a second time, which tells what a difference is worth.
Rows are tokens of one sequence, as in speculative decoding, or with --sequences one of each of
several.

The models are mlx_lm's with random weights, by default small ones, which wait for the host.
--device cpu tries the script with tiny ones.
"""

from __future__ import annotations

import time

import mlx.core as mx
import mlx.nn as nn

from harness import llama, models
from harness.script import Script
from harness.sides import BESIDE_STOCK
from harness.tables import red_if, table
from mlx_norms._measure import timing
from mlx_norms.commands._sides import CONTEXTS

MODELS = "llama-0.6B,qwen3-0.6B"
PROMPT, BEFORE, STEPS = 64, 4, 6
SIDES = BESIDE_STOCK | {"projections": CONTEXTS["projections"]}
PARTS = ("build", "eval", "wall")
COLUMNS = ("model", "format", "rows", "sequences", "side", "part", "us", "lower", "upper")
COLUMNS += ("stock_over_side", "ratio_lower", "ratio_upper", "source")


class Steps:
    """Decode steps of ``rows`` tokens, of one sequence or of as many ``sequences``."""

    def __init__(self, model: nn.Module, rows: int, sequences: bool) -> None:
        self._model, self._cache = model, models.new_cache(model)
        shape = (rows, 1) if sequences else (1, rows)
        following = self._following(mx.broadcast_to(mx.arange(PROMPT), (shape[0], PROMPT)))
        self._tokens = mx.broadcast_to(following[:, -1:], shape)
        mx.eval(self._tokens)

    def _following(self, tokens: mx.array) -> mx.array:
        """The tokens after each of some."""
        return mx.argmax(self._model(tokens, cache=self._cache), axis=-1)

    def _make(self, count: int) -> tuple[float, float]:
        build = evaluate = 0.0
        tokens = self._tokens
        for _ in range(count):
            start = time.thread_time()
            tokens = self._following(tokens)
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
        models.trim(self._cache, (BEFORE + STEPS) * self._tokens.shape[1])
        return {part: each / STEPS for part, each in zip(PARTS, seconds, strict=True)}


def measure(steps: Steps, sides: list[str], rounds: int) -> dict[tuple[str, str], timing.Samples]:
    """The samples by side and part."""
    found = {(side, part): [] for side in sides for part in PARTS}
    for side in timing.turns(sides, rounds):
        with SIDES[side]():
            for part, seconds in steps.seconds().items():
                found[side, part].append(seconds)
    return {key: timing.Samples(tuple(values)) for key, values in found.items()}


def main() -> None:
    script = Script(__doc__, COLUMNS, rounds=41)
    add = script.parser.add_argument
    add("--models", default=MODELS, help=f"of {', '.join(llama.MODELS)} (default: %(default)s)")
    add("--formats", default="bf16,4-bit", help=f"of {', '.join(llama.FORMATS)}")
    add("--rows", default="1,8", help="numbers of rows of a step")
    add("--sides", default=",".join(SIDES), help="beside stock (default: %(default)s)")
    add("--sequences", action="store_true", help="a row is a sequence's, not one sequence's")
    args = script.begin()
    sides = [side for side in SIDES if side in {"stock", *args.sides.split(",")}]
    headings = ("build", "eval", "wall, µs", "stock over it: wall")
    found = table("median (quartiles)", ("step", "side"), headings)
    for name in args.models.split(","):
        shapes = llama.shapes_of(name, tiny=script.tiny)
        for form in args.formats.split(","):
            mx.random.seed(0)
            model, source = llama.build(shapes, llama.FORMATS[form])
            for rows in map(int, args.rows.split(",")):
                step = (name, form, rows, rows if args.sequences else 1)
                samples = measure(Steps(model, rows, args.sequences), sides, args.rounds)
                for side in sides:
                    for part in PARTS:
                        each = samples[side, part]
                        ratio = samples["stock", part].over(each)
                        us = each.figures(1e6)
                        ratios = ratio.figures()
                        script.write(*step, side, part, *us, *ratios, source)
                    us = (f"{1e6 * samples[side, part].median:.0f}" for part in PARTS)
                    over = "" if side == "stock" else red_if(ratio.median < 1, ratio.spread(".3f"))
                    found.add_row(f"{name}, {form}, {rows}", side, *us, over)
            del model
            mx.clear_cache()
    script.console.print(found)
