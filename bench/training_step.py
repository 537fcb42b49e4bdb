"""Times a language model's training step with random weights, stock against patched.

The loss of a batch of tokens, the gradients and AdamW's update, eagerly and under mx.compile. Each
side has a model of its own and they take turns: stock's time over a side's, the median over the
rounds (quartiles). "stock again" is stock a second time, which tells what a difference is worth.

The models are mlx_lm's. --device cpu tries the script with tiny ones.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import mlx.core as mx
import mlx.nn as nn
import mlx.optimizers as optim

from harness import llama
from harness.script import Script
from harness.sides import BESIDE_STOCK as SIDES
from harness.tables import red_if, table
from mlx_norms._measure import timing

SHAPES = llama.Shapes(16, 2048, 8192, 16, 8, 32000)
MODELS = ("llama", "qwen3")
BATCH, TOKENS = 4, 2048
COLUMNS = ("model", "mode", "side", "ms", "lower", "upper", "stock_over_side")
COLUMNS += ("ratio_lower", "ratio_upper", "source")


def training(shapes: llama.Shapes, tokens: mx.array, compiled: bool) -> tuple[Callable, str]:
    """A function that makes steps of a new model."""
    mx.random.seed(0)
    model, source = llama.build(shapes, None)
    optimizer = optim.AdamW(learning_rate=1e-5)

    def loss(model: nn.Module, inputs: mx.array, targets: mx.array) -> mx.array:
        return nn.losses.cross_entropy(model(inputs), targets, reduction="mean")

    loss_and_gradients = nn.value_and_grad(model, loss)

    def step(inputs: mx.array, targets: mx.array) -> mx.array:
        value, gradients = loss_and_gradients(model, inputs, targets)
        optimizer.update(model, gradients)
        return value

    state = [model.state, optimizer.state]
    run = mx.compile(step, inputs=state, outputs=state) if compiled else step

    def steps(count: int) -> None:
        for _ in range(count):
            mx.eval(run(tokens[:, :-1], tokens[:, 1:]), state)

    return steps, source


def main() -> None:
    script = Script(__doc__, COLUMNS, rounds=21)
    args = script.begin()
    found = table("median (quartiles)", ("step", "side"), ("ms", "stock over it"))
    shapes, (batch, length) = (llama.TINY, (2, 8)) if script.tiny else (SHAPES, (BATCH, TOKENS))
    tokens = mx.random.randint(0, shapes.vocab_size, (batch, length + 1))
    for model in MODELS:
        shapes = dataclasses.replace(shapes, model_type=model)
        for mode in ("eager", "compiled"):
            steps = {side: training(shapes, tokens, mode == "compiled") for side in SIDES}
            runs = {side: timing.Runs(steps[side][0], SIDES[side]) for side in SIDES}
            samples = timing.measure(runs, rounds=args.rounds, count=1)
            for side, each in samples.items():
                ratio = samples["stock"].over(each)
                ms = each.figures(1e3)
                ratios = ratio.figures()
                script.write(model, mode, side, *ms, *ratios, steps[side][1])
                over = "" if side == "stock" else red_if(ratio.median < 1, ratio.spread(".3f"))
                found.add_row(f"{model}, {mode}", side, each.spread(".1f", 1e3), over)
            del steps, runs
            mx.clear_cache()
    script.console.print(found)
