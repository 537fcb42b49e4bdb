"""Random calls of group, instance and batch norm, whose truth support.group_norm has."""

import mlx.core as mx
import numpy as np

from support.group_norm import GroupCase
from support.norm_case import DTYPES

from .layouts import laid_out

OPS = ("group_norm", "instance_norm", "batch_norm")
EPS = (1e-5, 1e-6, 1e-3, 0.5)
CHANNELS = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 50, 64, 96, 128, 320, 640)


def generate(rng, elements):
    """A call on about so many elements."""
    op = str(rng.choice(OPS))
    fits = [c for c in CHANNELS if c <= max(elements, 1)]
    channels = int(rng.choice(fits))
    positions = max(elements // channels, 1)
    samples = int(rng.integers(1, min(positions, 5) + 1))
    inner = max(positions // samples, 1)
    split = int(rng.choice([n for n in (1, 2, 3, 5) if inner % n == 0]))
    shape = (samples, split, inner // split, channels)
    if split == 1 and op != "batch_norm" or rng.random() < 0.3:
        shape = (samples, inner, channels)
    training = op == "batch_norm" and samples * inner > 1 and bool(rng.random() < 0.5)
    options = dict(eps=float(rng.choice(EPS)))
    if op == "group_norm":
        groups = [g for g in range(1, channels + 1) if channels % g == 0]
        options |= dict(num_groups=int(rng.choice(groups)))
        options |= dict(pytorch_compatible=bool(rng.integers(2)))
        options |= dict(activation=[None, "silu", "gelu"][rng.integers(3)])
    if rng.random() < 0.3:
        options["dtype"] = DTYPES[rng.integers(3)]
    if training:
        options["training"] = True
    dtype = DTYPES[rng.integers(3)]
    x = rng.standard_normal(shape, dtype=np.float32)
    if rng.random() < 0.4:  # means beyond the deviations
        x += np.float32(rng.choice([-1, 1]) * 10.0 ** rng.uniform(-1, 3))
    x *= np.float32(10.0 ** rng.uniform(-2, 1))
    arrays = {}
    if rng.random() < 0.8:
        arrays |= dict.fromkeys(("weight", "bias"))
    if op == "batch_norm" and rng.random() < 0.7:
        arrays |= dict.fromkeys(("mean", "var"))
    for name in arrays:
        values = rng.standard_normal(channels, dtype=np.float32)
        values = values * values + np.float32(0.1) if name == "var" else values
        arrays[name] = laid_out(rng, values, DTYPES[rng.integers(3)])
    return GroupCase(op, laid_out(rng, x, dtype), **arrays, **options)


def failures(case):
    """Failures as sentences."""
    cotangent = np.random.default_rng(case.x.size).standard_normal(case.x.shape, dtype=np.float32)
    try:
        case.check(mx.array(cotangent).astype(case.dtype))
    except AssertionError as wrong:
        return [str(wrong)]
    return []
