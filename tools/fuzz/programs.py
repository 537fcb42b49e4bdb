"""Generates the program of a seed."""

import itertools

import mlx.core as mx
import numpy as np

from support.norm_case import DTYPES

from . import (  # noqa: F401, whose kinds are drawn
    effects,
    image_steps,
    layer_steps,
    op_steps,
    steps,
    transforms,
)
from .backends import fuse_compiled
from .draw import Draw
from .norms import Stock
from .program import Context, Input, Layer, Program, start

LENGTHS = (1, 2, 3, 5, 7, 8, 16, 31, 32, 32, 33, 64, 64, 65, 100, 128)
SIMULATED_LENGTHS = (1, 2, 5, 8, 31, 32, 32, 33, 64)
LEADS = ((), (1,), (2,), (3,), (5,), (1, 1), (1, 3), (2, 3), (3, 1, 2), (17,))


def generate(seed, backend):
    """A program whose steps MLX accepts, with its own norms in place of ours."""
    rng = np.random.default_rng([seed, 14])
    draw = Draw(rng, Context(Stock, backend.streams, []), (), itertools.count())
    dtypes = (mx.float32,) if draw.chance(0.6) else DTYPES
    if draw.chance(0.1):
        dtypes = DTYPES[1:]
    draw.dtypes = dtypes
    draw.pure = draw.chance(0.3)
    fuses = draw.chance(0.02)
    fuse_compiled(fuses)
    length = draw.one_of(SIMULATED_LENGTHS if backend.simulated else LENGTHS)
    lead = draw.one_of(LEADS[:-1] if backend.simulated else LEADS)
    layers = tuple(layers_for(draw, length))
    inputs = {}
    for shape, scale in shapes(draw, lead, length):
        inputs[next(draw.numbers)] = Input(values(draw, shape, scale), draw.dtype())
    program = Program(seed, inputs, layers, (), draw.pure, fuses, (), (), dtypes)
    arrays = [a.array() for a in inputs.values()]
    draw.context = start(program, Stock, backend.streams, arrays)
    draw.own = set(inputs)
    program_steps = draw.steps(draw.integer(3, 14))
    groups = in_groups(draw, list(draw.values))
    asynchronous = tuple(draw.chance(0.3) for _ in groups)
    return Program(
        seed, inputs, layers, tuple(program_steps), draw.pure, fuses, groups, asynchronous, dtypes
    )


def shapes(draw, lead, length):
    """The shapes of the inputs, and the standard deviations of their values."""
    for _ in range(draw.integer(2, 4)):
        yield (*lead, length), draw.one_of([1.0, 1.0, 1.0, 1e-3, 30.0])
    for _ in range(draw.integer(2, 4)):
        yield (length,), 1.0
    if lead and draw.chance(0.5):
        yield (lead[-1], length), 1.0
    if draw.chance(0.3):
        yield (*lead, 1), 1.0


def values(draw, shape, scale):
    a = draw.rng.standard_normal(shape, dtype=np.float32) * np.float32(scale)
    if draw.chance(0.1):
        a += np.float32(draw.one_of([1.0, 100.0]))
    if draw.chance(0.05):
        place = tuple(draw.integer(0, n - 1) for n in shape)
        a[place] = draw.one_of([np.inf, -np.inf, np.nan, 6e4, 0.0])
    return a


def layers_for(draw, length):
    for _ in range(draw.integer(0, 4)):
        quantized = length % 32 == 0 and draw.chance(0.6)
        group_size = draw.one_of([g for g in (32, 64, 128) if length % g == 0]) if quantized else 0
        outputs = length if draw.chance(0.5) else draw.one_of([1, 8, 32, 48])
        bits = draw.one_of([4, 8]) if quantized else None
        seed = draw.integer(0, 1 << 30)
        yield Layer(length, outputs, draw.chance(0.4), bits, group_size, draw.dtype(), seed)


def in_groups(draw, numbers):
    """The numbers in random order, in groups."""
    order = [numbers[i] for i in draw.rng.permutation(len(numbers))]
    groups = []
    while order:
        count = draw.integer(1, len(order))
        groups.append(tuple(order[:count]))
        order = order[count:]
    return tuple(groups)
