"""A language model's training step with random weights, stock against patched.

The loss of a batch of tokens, the gradients and AdamW's update, eagerly and under mx.compile. Each
side has a model of its own. "stock again" is stock a second time, which tells what a difference is
worth. The models are mlx_lm's.
"""

from __future__ import annotations

import argparse
import dataclasses
import itertools
from collections.abc import Callable, Iterator

import mlx.core as mx
import mlx.nn as nn
import mlx.optimizers as optim

from harness import llama
from harness.suite import Case, Suite
from mlx_norms._measure import timing
from model import CONTEXTS

SHAPES = llama.Shapes(16, 2048, 8192, 16, 8, 32000)
BATCH, TOKENS = 4, 2048
SIDES = ("stock", "stock again", "patched", "fuse=False")


def training(shapes: llama.Shapes, tokens: mx.array, compiled: bool) -> Callable[[int], None]:
    """A function that makes steps of a new model."""
    mx.random.seed(0)
    model, _ = llama.build(shapes, None)
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

    return steps


def cases(args: argparse.Namespace) -> Iterator[Case]:
    shapes, (batch, length) = (llama.TINY, (2, 8)) if args.tiny else (SHAPES, (BATCH, TOKENS))
    tokens = mx.random.randint(0, shapes.vocab_size, (batch, length + 1))
    for model, mode in itertools.product(("llama", "qwen3"), ("eager", "compiled")):
        of = dataclasses.replace(shapes, model_type=model)

        def sides(of=of, mode=mode) -> dict[str, timing.Runs]:
            mx.clear_cache()
            steps = {side: training(of, tokens, mode == "compiled") for side in SIDES}
            return {side: timing.Runs(run, CONTEXTS[side]) for side, run in steps.items()}

        yield Case(dict(model=model, mode=mode), sides, count=1)


SUITE = Suite(__doc__, ("model", "mode"), cases, ("wall",), base="stock", rounds=21)
