"""Input arrays and the grid of shapes."""

import functools
import itertools
import zlib

import mlx.core as mx
import numpy as np

from .norm_case import DTYPES

# Lengths are each power of two at which a kernel's path changes (a vector, a SIMD-group of 32, a
# group of up to 1024 threads with 4 or 8 elements each, a looped row), and one element to either
# side, where tails may be lost or read twice. The numbers of rows are none, one, a small odd one,
# and one more than 512, past a block of rows of any kernel. With 65536 elements per row, many rows
# only add time. What is slow, a simulator or a sanitizer, gets many rows only if short.
LENGTHS = (
    *(1, 2, 31, 32, 33, 63, 64, 65, 127, 128, 129, 255, 256, 257, 511, 512, 513),
    *(1023, 1024, 1025, 4095, 4096, 4097, 8191, 8192, 8193, 65536),
)
MANY_ROWS = 513

# Set by conftest.py: for a simulator or by --slow, and for a GPU, where each combination of length,
# dtype and layout is a kernel to compile, which takes longer than to run it.
SLOW = False
COMPILES = False


def unless_slow(*values):
    """Values that are left out where they would take minutes."""
    return () if SLOW else values


def in_turn(values, turn):
    """All values or, where that takes minutes, one of three of them, others in the next turn."""
    values = list(values)
    return values[turn % 3 :: 3] if SLOW or COMPILES else values


def dtype_pairs(length):
    """Pairs of dtypes that differ."""
    pairs = itertools.permutations(DTYPES, 2)
    return in_turn(pairs, LENGTHS.index(length))


def few_rows_for(length):
    return (0, 1) if SLOW and length > 8193 else (0, 1, 3)


def rows_for(length, many_up_to=8193):
    """Numbers of rows, with large ones for lengths up to ``many_up_to``."""
    few = few_rows_for(length)
    return (*few, MANY_ROWS) if length <= (129 if SLOW else many_up_to) else few


def rows_and_dtypes(length):
    """Pairs of both; many rows of a length past 1025 are of one dtype, in turn with the lengths."""
    turn = LENGTHS.index(length) % 3
    for rows, (i, dtype) in itertools.product(rows_for(length), enumerate(DTYPES)):
        if rows < MANY_ROWS or length <= 1025 or i == turn:
            yield rows, dtype


def normal(shape, dtype, *, seed, mean=0.0, std=1.0):
    """Normally distributed values, quantized to ``dtype``. The seed is anything with a repr."""
    values = drawn(repr(seed), tuple(shape))
    return mx.array(values * np.float32(std) + np.float32(mean)).astype(dtype)


@functools.lru_cache(maxsize=8)
def drawn(seed, shape):
    """Of mean 0 and deviation 1: a call's arrays and cotangents, which each dtype quantizes."""
    return np.random.default_rng(zlib.crc32(seed.encode())).standard_normal(shape, dtype=np.float32)


def arguments(norm, shape, dtype, *, others=None, seed=0, mean=0.0, std=1.0, without=()):
    """Arrays for an op: x of ``shape``, and matching residual, weight and bias.

    All have dtype ``dtype``, except those named in ``others``, a dict of dtypes.
    """
    dtypes = {name: dtype for name in norm.arguments} | (others or {})
    arrays = {}
    for i, name in enumerate(norm.arguments):
        if name in without:
            continue
        row = name in ("weight", "bias")
        spread = {} if row else dict(mean=mean, std=std)
        of = shape[-1:] if row else shape
        arrays[name] = normal(of, dtypes[name], seed=(seed, i), **spread)
    return arrays


def cotangents(norm, arrays, seed=0):
    """A cotangent per output of the op."""
    out = [normal(arrays["x"].shape, norm.out_dtype(arrays), seed=(seed, 10))]
    if norm.adds:
        out.append(normal(arrays["x"].shape, norm.sum_dtype(arrays), seed=(seed, 11)))
    return out


def mixed_dtypes(norm, x, weight):
    """Dtypes of a config of the mixed grid: the bias has the dtype that x and weight lack."""
    left = [d for d in (mx.bfloat16, mx.float16, mx.float32) if d not in (x, weight)]
    return {"weight": weight} | ({"bias": left[0]} if norm.layer else {})
