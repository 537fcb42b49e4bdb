"""A program: its inputs, its steps, and how they are run."""

from dataclasses import dataclass, field, replace

import mlx.core as mx
import mlx.nn as nn
import numpy as np

KINDS = {}  # of steps, by name


def kind(weight, *, effect=False, writes=False, transforms=False):
    """Registers a class of the functions `choose(draw)` and `run(context, *arrays, **options)`.

    Args:
        weight: How often it is drawn, relative to the others.
        effect: Whether it does more than return arrays, so that pure programs do not have it.
        writes: Whether it changes its first array; functions may do this to their own arrays.
        transforms: Whether it calls functions made of other steps.
    """

    def register(cls):
        cls.weight, cls.effect, cls.writes, cls.transforms = weight, effect, writes, transforms
        cls.choose, cls.run = staticmethod(cls.choose), staticmethod(cls.run)
        KINDS[cls.__name__] = cls
        return cls

    return register


@dataclass(frozen=True)
class Body:
    """A function of some values; other values that its steps use are captured.

    ``shapes`` are those of its results.
    """

    arguments: tuple
    steps: tuple
    results: tuple
    shapes: tuple

    @property
    def captured(self):
        """The values from outside that it uses."""
        made, taken = set(self.arguments), set()
        for step in self.steps:
            taken |= step.taken - made
            made |= set(step.outputs)
        return taken

    def function(self, context):
        def run(*arrays):
            values = dict(context.values)
            values.update(zip(self.arguments, arrays, strict=True))
            run_steps(self.steps, replace(context, values=values))
            return [values[number] for number in self.results]

        return run

    def __str__(self):
        lines = [f"    {line}" for step in self.steps for line in str(step).split("\n")]
        head = f"({', '.join(map(name, self.arguments))}) ->"
        return "\n".join([f"{head} {', '.join(map(name, self.results))}:", *lines])


@dataclass(frozen=True)
class Step:
    """One call: the numbers of its input and output values.

    ``writes`` is the number of the value that it changes in place, if any.
    """

    kind: str
    inputs: tuple
    outputs: tuple
    options: dict
    stream: int = 0
    writes: int | None = None

    @property
    def body(self):
        return self.options.get("body")

    @property
    def taken(self):
        return set(self.inputs) | (self.body.captured if self.body else set())

    def __str__(self):
        options = [f"{k}={v!r}" for k, v in self.options.items() if k != "body"]
        call = f"{self.kind}({', '.join([*map(name, self.inputs), *options])})"
        text = f"{', '.join(map(name, self.outputs))} = {call}" if self.outputs else call
        text += f" on stream {self.stream}" if self.stream else ""
        return f"{text} of {self.body}" if self.body else text


def name(number):
    return f"v{number}"


@dataclass(frozen=True)
class Input:
    """Float32 values, and the dtype that they are rounded to."""

    values: np.ndarray
    dtype: mx.Dtype

    def array(self):
        return mx.array(self.values).astype(self.dtype)

    def __str__(self):
        return f"{str(self.dtype).split('.')[-1]}{list(self.values.shape)}"


@dataclass(frozen=True)
class Layer:
    """An nn.Linear, or the nn.QuantizedLinear made from it."""

    dims: int
    outputs: int
    bias: bool
    bits: int | None
    group_size: int
    dtype: mx.Dtype
    seed: int

    def build(self):
        rng = np.random.default_rng(self.seed)
        layer = nn.Linear(self.dims, self.outputs, bias=self.bias)
        layer.update(
            {
                key: mx.array(rng.standard_normal(p.shape, dtype=np.float32) * 0.2)
                for key, p in layer.parameters().items()
            }
        )
        layer.set_dtype(self.dtype)
        if self.bits:
            layer = nn.QuantizedLinear.from_linear(layer, self.group_size, self.bits)
        mx.eval(layer.parameters())
        return layer


@dataclass(frozen=True)
class Program:
    """The program of a seed.

    Attributes:
        inputs: The inputs, by the numbers of their values.
        pure: Whether it has no effects.
        fuses: Whether mx.compile fuses elementwise ops into one kernel.
        groups: Values that are evaluated together at the end, in order, the remaining ones last.
        asynchronous: The groups that are first passed to mx.async_eval.
        dtypes: The dtypes of its inputs and casts.
    """

    seed: int
    inputs: dict
    layers: tuple
    steps: tuple
    pure: bool
    fuses: bool
    groups: tuple
    asynchronous: tuple
    dtypes: tuple

    def __str__(self):
        inputs = [f"{name(number)}: {a}" for number, a in self.inputs.items()]
        layers = [f"layer {i}: {layer}" for i, layer in enumerate(self.layers)]
        return "\n".join([", ".join(inputs), *layers, *map(str, self.steps)])


@dataclass(frozen=True)
class Context:
    """The context in which steps run.

    Attributes:
        norms: `norms.Ours` or `norms.Stock`.
        streams: Streams by number.
        layers: The built layers.
        values: Arrays by number.
        raised: Types and texts of the exceptions that were caught.
    """

    norms: type
    streams: list
    layers: list
    values: dict = field(default_factory=dict)
    raised: list = field(default_factory=list)


def run_steps(steps, context):
    for step in steps:
        run_step(step, context)


def run_step(step, context):
    arrays = [context.values[number] for number in step.inputs]
    run = KINDS[step.kind].run
    if step.stream:
        with mx.stream(context.streams[step.stream]):
            made = run(context, *arrays, **step.options)
    else:
        made = run(context, *arrays, **step.options)
    context.values.update(zip(step.outputs, made, strict=True))


def inputs_of(program):
    """New arrays at each call, since programs change them."""
    arrays = [a.array() for a in program.inputs.values()]
    mx.eval(arrays)
    return arrays


def evaluate(program, values):
    """Evaluates all values that are held, in the program's groups and order."""
    left = dict(values)
    for group, asynchronous in zip(program.groups, program.asynchronous, strict=True):
        arrays = [left.pop(number) for number in group if number in left]
        if asynchronous:
            mx.async_eval(arrays)
        else:
            mx.eval(arrays)
    mx.eval(list(values.values()))


def start(program, norms, streams, arrays):
    """A context in which no step has run."""
    values = dict(zip(program.inputs, arrays, strict=True))
    return Context(norms, streams, [layer.build() for layer in program.layers], values)
