"""Blocks of models on several sides: time, memory and error, forward and in training."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import NamedTuple

import mlx.core as mx
import mlx.nn as nn
from mlx.utils import tree_flatten, tree_map

from mlx_norms._measure import timing

from .suite import Case

LABELS = ("block", "what", "dtype", "compiled")


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
    return array.astype(mx.float32) if mx.issubdtype(array.dtype, mx.floating) else array


def peak(call: Callable) -> float:
    """MB that a call takes at most beyond what is alive before it."""
    mx.synchronize()
    before = mx.get_active_memory()
    mx.reset_peak_memory()
    mx.eval(call())
    return (mx.get_peak_memory() - before) / 2**20


class Side(NamedTuple):
    """A function of the weights and of the arrays, and what it runs in."""

    outputs: Callable
    context: Callable[[], contextlib.AbstractContextManager] = contextlib.nullcontext


def cases(
    name: str,
    dtype: str,
    sides: Mapping[str, Side],
    exact: Callable,
    arrays: list,
    inputs: int,
    *,
    base: str = "stock",
    compiled_sides: tuple[str, ...] | None = None,
    more: Callable[[str, Callable], Mapping[str, object]] = lambda side, call: {},
) -> Iterator[Case]:
    """Forward and a training step, eagerly and compiled.

    Args:
        exact: A function as a side's, of float32 arrays, for the errors.
        arrays: The weights, and what the block is called with.
        inputs: How many arrays after the weights have a gradient.
        base: The side whose time is over the others'.
        compiled_sides: Those of a step, and of what is compiled, if not all.
        more: What else there is to say of a side, given its call.
    """
    for what, is_compiled in ((w, c) for w in ("forward", "training step") for c in (False, True)):
        of = partial(step, inputs=inputs) if what == "training step" else lambda outputs: outputs
        calls: dict[str, Callable] = {}

        def timed(calls=calls, of=of, what=what, is_compiled=is_compiled) -> dict[str, timing.Runs]:
            every = what == "forward" and not is_compiled
            for side in sides if every or not compiled_sides else compiled_sides:
                with sides[side].context():
                    # Within: a patched process passes over what is differentiated or compiled.
                    function = of(sides[side].outputs)
                    function = mx.compile(function) if is_compiled else function
                    calls[side] = partial(function, *arrays)
                    mx.eval(calls[side]())
            return {side: _alone(call, sides[side].context) for side, call in calls.items()}

        def extras(side: str, calls=calls, of=of) -> dict[str, object]:
            truth = of(exact)(*tree_map(widen, arrays))
            mx.eval(truth)
            with sides[side].context():
                call = calls[side]
                found = dict(peak_mb=peak(call), error=distance(call(), truth))
            return found | more(side, call)

        labels = dict(zip(LABELS, (name, what, dtype, is_compiled), strict=True))
        yield Case(labels, timed, extras=extras, base=base)


def _alone(call: Callable, context: Callable) -> timing.Runs:
    """Calls that are evaluated one by one."""

    def run(count: int) -> None:
        for _ in range(count):
            mx.eval(call())

    return timing.Runs(run, context)
