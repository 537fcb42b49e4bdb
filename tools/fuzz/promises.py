"""How well each value of a program must agree with the run that uses MLX's own norms.

SAME_BITS: no norm is in it, so it is bit-identical to the stock run's.
SAME_NORMS: norms are in it, each within its bounds of mx.fast's; fused or not, it is bit-identical.
CLOSE: within the effect of such bounds. Gradients of a fused norm and its residual add are rounded
once, those of the two ops twice; a weight 1 + w stays in float32 where it is recognized; rows of 16
bits that are cast for a norm are spread over threads as 16 bits; a norm's rope rounds once on a
GPU; and what a pass over the graph makes the weight or bias of a group norm is rounded with it.
"""

from enum import IntEnum

import mlx.core as mx

from .op_steps import IMAGES


class Promise(IntEnum):
    SAME_BITS = 0
    SAME_NORMS = 1
    CLOSE = 2


def promises(program, compiled_is_exact):
    """The promise of each value, by number; in-place changes count for every name of an array.

    Args:
        compiled_is_exact: Whether mx.compile's kernels round as the ops that they are made of.
    """
    walk = Walk({n: Promise.SAME_BITS for n in program.inputs}, set(program.inputs))
    walk.compiled = Promise.SAME_BITS if compiled_is_exact else Promise.CLOSE
    walk.all(program.steps)
    return {number: walk.of(number) for number in walk.promise}


class Walk:
    def __init__(self, promise, leaves, names=None):
        self.promise = promise
        self.leaves = leaves  # inputs, and arguments that are inputs
        self.names = names or {}
        self.casts = set()  # to float32
        self.compiled = Promise.SAME_BITS

    def of(self, number):
        return self.promise[self.names.get(number, number)]

    def all(self, steps):
        for step in steps:
            self.step(step)

    def step(self, step):
        promise = max((self.of(n) for n in step.inputs), default=Promise.SAME_BITS)
        if step.kind == "alias":
            (old,), (new,) = step.inputs, step.outputs
            self.names[new] = self.names.get(old, old)
            self.casts |= {new} if old in self.casts else set()
            self.promise[new] = promise
            return
        if step.body:
            results = self.body(step, promise)
        else:
            if step.kind == "cast" and step.options["dtype"] == mx.float32:
                self.casts |= set(step.outputs)
            if step.kind == "prologue" and step.options["form"] == "cast":
                self.casts |= set(step.outputs[:-1])  # the sum, if it is held
            if step.kind in NORMS and not self.casts.isdisjoint(step.inputs):
                promise = Promise.CLOSE
            results = [max(promise, own(step, i, self.leaves)) for i in range(len(step.outputs))]
        self.promise.update(zip(step.outputs, results, strict=True))
        if step.writes is not None:
            self.promise[self.names.get(step.writes, step.writes)] = promise
            self.leaves.discard(step.writes)

    def body(self, step, promise):
        inner = Walk(dict(self.promise), set(self.leaves), dict(self.names))
        inner.compiled = self.compiled
        inner.casts = set(self.casts)
        for argument, number in zip(step.body.arguments, step.inputs, strict=True):
            inner.promise[argument] = self.of(number)
            if number in self.leaves:
                inner.leaves.add(argument)
            if number in self.casts:
                inner.casts.add(argument)
        inner.all(step.body.steps)
        promise = max([promise, *(inner.of(n) for n in step.body.results)])
        if step.kind == "derivative" and inner.has_norm(step.body):
            promise = Promise.CLOSE
        if step.kind == "batched" and any("axis" in inner.options for inner in step.body.steps):
            # With a weight for each example it is composed of operations: a written norm.
            promise = Promise.CLOSE
        if step.kind == "compiled":
            promise = max(promise, self.compiled)
        return [promise] * len(step.outputs)

    def has_norm(self, body):
        """Whether a norm is in it, even if no result has it: a zero gradient is then exact."""
        return any(has_norm(step) for step in body.steps) or any(
            self.of(n) > Promise.SAME_BITS for n in body.captured
        )


NORMS = (
    "norm",
    "residual",
    "prologue",
    "norm_then_add_norm",
    "two_norms",
    "roped",
    "projections",
    "gated",
    "compiled_gated",
)
OURS = ("our_op", "image_layer")


def has_norm(step):
    if step.body:
        return any(has_norm(inner) for inner in step.body.steps)
    return step.kind in NORMS + OURS


def own(step, output, leaves):
    """The promise that a step alone gives for one of its outputs."""
    if not has_norm(step) or output == sum_of(step):
        return Promise.SAME_BITS
    if step.kind == "prologue" and step.options["form"] == "cast":
        return Promise.CLOSE
    images = step.kind == "our_op" and step.options["op"].startswith(IMAGES)
    if images or step.kind in ("roped", "image_layer"):
        return Promise.CLOSE  # a GPU's angles, and roundings in between
    if step.kind in NORMS:
        parameters = step.inputs[len(step.inputs) - sum(step.options["has"]) :]
        if not set(parameters) <= leaves:
            return Promise.CLOSE  # a parameter may be 1 + w
    return Promise.SAME_NORMS


def sum_of(step):
    """The index of a step's output that is the sum which its norm reads."""
    if step.kind in ("residual", "prologue") and step.options["held"]:
        return 0
    if step.kind == "our_op" and step.options["op"].startswith("add_"):
        return 1
    if step.kind == "projections" and step.options["adds"]:
        return len(step.options["layers"])
    return None
