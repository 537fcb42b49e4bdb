"""The variants of a model run that are compared: stock, patched, with projections."""

from __future__ import annotations

import argparse
import contextlib
from collections.abc import Mapping

import mlx.core as mx

from .._bench import timing
from .._bench.sides import CONTEXTS

SIDES = ("stock", "patched")


def add_option(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--projections",
        action="store_true",
        help="measure a third side, patched(projections=True): norms computed with the products "
        "that take them, in decoding, on a GPU",
    )


def chosen(args: argparse.Namespace) -> tuple[str, ...]:
    """The names of the requested sides, stock first."""
    return tuple(CONTEXTS) if args.projections else SIDES


def context(side: str) -> contextlib.AbstractContextManager:
    """The context in which a model runs as this side."""
    return CONTEXTS[side]()


def note(sides: tuple[str, ...]) -> str | None:
    """A note on a side that changes nothing on this device."""
    if "projections" in sides and mx.default_device() == mx.cpu:
        return "Projections do nothing on the CPU: that side computes there what patched does."
    return None


def pace(side: str, over_stock: Mapping[str, timing.Ratio]) -> str:
    """How many times as fast as stock a side is, by phase, in words."""
    found = ", ".join(f"{phase} {_times(over_stock[phase])}" for phase in ("decode", "prefill"))
    return f"{side} against stock: {found}"


def _times(ratio: timing.Ratio) -> str:
    if ratio.is_noise:
        return "too noisy to tell"
    lower, upper = ratio.quartiles
    one = len(ratio.values) == 1
    spread = "one round only" if one else f"{lower:.3f} to {upper:.3f}"
    return f"{ratio.median:.3f} times as fast ({spread})"
