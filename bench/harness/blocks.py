"""Runs of a model's block on several sides: time, memory and error, forward and in training."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial

import mlx.core as mx
import mlx.nn as nn
from mlx.utils import tree_flatten, tree_map

from mlx_norms._measure import timing

from .script import Script
from .tables import table

COLUMNS = ["what", "dtype", "side", "compiled", "ms", "ms_lower", "ms_upper", "over", "over_lower"]
COLUMNS += ["over_upper", "peak_mb", "error"]


def forward(side: Callable, block: nn.Module) -> Callable:
    """A function of the weights and of the arrays, which leaves the block as it was."""

    def outputs(weights, *arrays):
        kept = block.parameters()
        block.update(weights)
        try:
            return side(block, *arrays)
        finally:
            block.update(kept)

    return outputs


def step(outputs: Callable, inputs: int) -> Callable:
    """The loss of a forward's outputs, and the gradients of the weights and the first inputs."""

    def loss(*arrays):
        found = tree_flatten(outputs(*arrays))
        return sum(mx.square(each.astype(mx.float32)).mean() for _, each in found)

    return mx.value_and_grad(loss, argnums=tuple(range(1 + inputs)))


def distance(found, exact) -> float:
    """The norm of the difference over that of the exact arrays."""
    pairs = zip(tree_flatten(found), tree_flatten(exact), strict=True)
    squares = [(0.0, 0.0)]
    for (_, a), (_, b) in pairs:
        b = b.astype(mx.float32)
        squares.append((mx.square(a.astype(mx.float32) - b).sum(), mx.square(b).sum()))
    of_difference, of_exact = (sum(of) for of in zip(*squares, strict=True))
    return mx.sqrt(of_difference / of_exact).item()


def widen(array: mx.array) -> mx.array:
    return array.astype(mx.float32)


def each_alone(call: Callable, *context: Callable) -> timing.Runs:
    """Calls that are evaluated one by one, perhaps in a context."""

    def run(count: int) -> None:
        for _ in range(count):
            mx.eval(call())

    return timing.Runs(run, *context)


def peak(call: Callable) -> float:
    """MB that a call takes at most beyond what is alive before it."""
    mx.synchronize()
    before = mx.get_active_memory()
    mx.reset_peak_memory()
    mx.eval(call())
    return (mx.get_peak_memory() - before) / 2**20


def compare(
    script: Script,
    title: str,
    sides: Mapping[str, Callable],
    exact: Callable,
    arrays: list,
    inputs: int,
    *,
    dtype: str,
    rounds: int,
    named: tuple = (),
) -> None:
    """Times each side's forward and training step, prints a table, and writes the figures.

    Args:
        sides: Functions of ``arrays``, the weights first; the first side is what others are
            measured against.
        exact: Such a function, of float32 arrays, for the errors.
        inputs: How many arrays after the weights have a gradient.
        named: Values of the script's columns before COLUMNS.
    """
    against = next(iter(sides))
    headings = ("", "side", "compiled", "ms", f"{against} / this, in turn", "MB at most", "error")
    found = table(title, headings[:1], headings[1:])
    for what in ("forward", "training step"):
        make = partial(step, inputs=inputs) if what == "training step" else lambda outputs: outputs
        truth = make(exact)(*tree_map(widen, arrays))
        mx.eval(truth)
        functions = {(name, False): make(side) for name, side in sides.items()}
        functions |= {(name, True): mx.compile(functions[name, False]) for name in sides}
        calls = {name: partial(function, *arrays) for name, function in functions.items()}
        seconds = timing.measure(
            {name: each_alone(call) for name, call in calls.items()}, rounds=rounds
        )
        for (name, is_compiled), samples in seconds.items():
            call = calls[name, is_compiled]
            ratio = seconds[against, is_compiled].over(samples)
            most, error = peak(call), distance(call(), truth)
            found.add_row(
                *(what, name, "yes" if is_compiled else "no", samples.spread(".3f", 1e3)),
                *(ratio.spread(".3f"), f"{most:.0f}", f"{error:.2e}"),
            )
            ms = samples.figures(1e3)
            over = ratio.figures()
            script.write(*named, what, dtype, name, is_compiled, *ms, *over, most, error)
        del truth
    script.console.print(found)
