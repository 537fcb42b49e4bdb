"""Random choices of steps for the values that exist so far."""

import itertools
from dataclasses import dataclass, field, replace

import mlx.core as mx
import numpy as np

from .program import KINDS, Body, Context, Step

DEPTH = 2  # of nested transforms


class NoChoice(Exception):
    """No value fits."""


@dataclass
class Draw:
    """The state from which steps are drawn.

    Attributes:
        rng: Random numbers.
        context: The values so far, computed by MLX's own norms, pending.
        own: Numbers of values that may be changed in place.
        local, around: Values of the function whose steps are drawn, and of the one around it.
        pure: Whether no effects are drawn.
        depth: The nesting depth of the function whose steps are drawn.
    """

    rng: np.random.Generator
    context: Context
    dtypes: tuple
    numbers: itertools.count
    own: set = field(default_factory=set)
    local: set = field(default_factory=set)
    around: set = field(default_factory=set)
    pure: bool = False
    depth: int = 0

    @property
    def values(self):
        return self.context.values

    def chance(self, p):
        return bool(self.rng.random() < p)

    def one_of(self, items):
        items = list(items)
        if not items:
            raise NoChoice
        return items[int(self.rng.integers(len(items)))]

    def integer(self, low, high):
        """An integer from ``low`` to ``high``, both included."""
        return int(self.rng.integers(low, high + 1))

    def value(self, fits=lambda a: a.size > 0, among=None):
        """The number of a value that fits; recent and local ones are preferred."""
        numbers = [n for n, a in self.values.items() if fits(a) and (among is None or n in among)]
        near = self.local if self.chance(0.7) else self.around
        numbers = [n for n in numbers if n in near] or numbers
        if self.chance(0.6):
            numbers = numbers[-5:]
        return self.one_of(numbers)

    def like(self, number):
        shape = self.values[number].shape
        return self.value(lambda a: a.shape == shape)

    def rows(self):
        """The number of a value that a norm can be applied to."""
        return self.value(lambda a: a.ndim >= 1 and a.size > 0)

    def row_of(self, number):
        """The number of a weight or bias for the rows of a value."""
        shape = self.values[number].shape[-1:]
        return self.value(lambda a: a.shape == shape)

    def steps(self, count):
        """``count`` steps, each of which has run."""
        kinds = [k for k in KINDS.values() if not (k.effect and self.pure)]
        if self.depth:
            kinds = [k for k in kinds if not k.effect or k.writes]
        if self.depth == DEPTH:
            kinds = [k for k in kinds if not k.transforms]
        weights = np.array([k.weight for k in kinds], float)
        steps = []
        for _ in range(8 * count):
            if len(steps) == count:
                break
            chosen = kinds[int(self.rng.choice(len(kinds), p=weights / weights.sum()))]
            try:
                steps.append(self.step(chosen))
            except NoChoice:
                continue
        return steps

    def step(self, chosen):
        """A step of this kind; raises NoChoice if MLX cannot run it."""
        inputs, options = chosen.choose(self)
        writes = inputs[0] if chosen.writes else None
        stream = 0
        if not self.depth and self.chance(0.1):
            stream = self.integer(1, len(self.context.streams) - 1)
        step = Step(chosen.__name__, tuple(inputs), (), options, stream, writes)
        try:
            made = self._run(step)
        except Exception as error:  # from MLX, which has no vmap of some ops, for instance
            raise NoChoice from error
        numbers = tuple(itertools.islice(self.numbers, len(made)))
        self.values.update(zip(numbers, made, strict=True))
        self.own |= set(numbers)
        if self.depth:
            self.local |= set(numbers)
        return replace(step, outputs=numbers)

    def _run(self, step):
        arrays = [self.values[number] for number in step.inputs]
        with mx.stream(self.context.streams[step.stream]):
            return KINDS[step.kind].run(self.context, *arrays, **step.options)

    def body(self, dummies, count):
        """A function whose arguments are like these arrays."""
        arguments = tuple(itertools.islice(self.numbers, len(dummies)))
        values = dict(self.values) | dict(zip(arguments, dummies, strict=True))
        inner = Draw(
            self.rng,
            replace(self.context, values=values),
            self.dtypes,
            self.numbers,
            local=set(arguments),
            around=self.local if self.chance(0.7) else set(),
            pure=self.pure,
            depth=self.depth + 1,
        )
        steps = inner.steps(count)
        made = [n for step in steps for n in step.outputs if n in values]
        if not made:
            raise NoChoice
        results = {made[-1]} | {self.one_of(made) for _ in range(self.integer(0, 2))}
        results = tuple(sorted(results))
        return Body(arguments, tuple(steps), results, tuple(values[n].shape for n in results))

    def dtype(self):
        return self.one_of(self.dtypes)
