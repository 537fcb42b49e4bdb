"""Products of a few rows with a weight, on a GPU: their calls, their times, and a copy's speed."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

import mlx.core as mx

from . import device_copy, kernels
from .providers import Calls, copies, sets_needed
from .script import Script

_CALLS = 32  # evaluated together
_COPY_BYTES = 1 << 30
_CACHES = 8  # caches' worth of weights used in turn: with two, some stay in the cache


def calls(
    inputs: list[mx.array],
    functions: Mapping[str, Callable],
    *,
    weight_bytes: int,
    output_bytes: int,
) -> dict[str, Calls]:
    """Calls of functions of the same arrays, whose weights are used in turn."""
    arrays = copies(inputs, sets_needed(weight_bytes, caches=_CACHES))
    return {name: Calls(f, arrays, None, output_bytes) for name, f in functions.items()}


def measure(
    script: Script, products: Iterable, providers: Callable[[object], dict], rounds: int
) -> tuple[float, dict]:
    """Bytes per second of a copy, and the times of each product's providers."""
    size = _COPY_BYTES >> 10 if script.tiny else _COPY_BYTES
    copy = device_copy.rate(size, script.say)
    count = 4 if script.tiny else _CALLS
    options = dict(rounds=rounds, say=script.say)
    return copy, kernels.measure(products, providers, lambda product: count, **options)
