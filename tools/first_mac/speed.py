"""The rows of bench/mac.py, in five rounds, a row an item."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator

from . import items

_TINY_ROWS = slice(2, None, 3)


def listed() -> Iterator[items.Item]:
    _use_the_device()
    import mac

    tries = [*mac.tries(items.is_tiny())]
    for name, measure in tries[_TINY_ROWS if items.is_tiny() else slice(None)]:
        yield name, lambda measure=measure: with_warnings(measure)


def _use_the_device() -> None:
    import mlx.core as mx

    mx.random.seed(0)
    mx.set_default_device(mx.cpu if items.is_tiny() else mx.gpu)


def with_warnings(measure: Callable[[], dict]) -> dict:
    """What it found, with what it warned of, such as a kernel that its self-check refuses."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        found = measure()
    if caught:
        found["warned"] = [items.private(str(each.message))[:600] for each in caught]
    return found
