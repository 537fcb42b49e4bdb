"""The variants of a model run that are compared: stock, patched, with projections."""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import functools
from collections.abc import Iterable, Mapping

import mlx.core as mx

import mlx_norms

from .._measure import timing

SIDES = ("stock", "patched")
CONTEXTS = {
    "stock": contextlib.nullcontext,
    "patched": mlx_norms.patched,
    "projections": functools.partial(mlx_norms.patched, projections=True),
}


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


def judged(sides: Iterable[str]) -> list[str]:
    """The sides of the verdict: not stock, nor one that is another side on this device."""
    alike = ("stock", "projections") if mx.default_device() == mx.cpu else ("stock",)
    return [side for side in sides if side not in alike]


def note(sides: tuple[str, ...]) -> str | None:
    """A note on a side that is left out of the verdict."""
    if set(sides) == {"stock", *judged(sides)}:
        return None
    return (
        "Projections do nothing on the CPU: that side computes there what patched does, and is "
        "left out of the verdict."
    )


def marked(ratio: timing.Ratio, report: mlx_norms.Report) -> timing.Ratio:
    """The ratio of a side and stock: they are the same if no norm was ours by ``report``."""
    ours = report.calls - report.passed_on + report.projections + report.products
    return dataclasses.replace(ratio, same=not ours)


def pace(side: str, over_stock: Mapping[str, timing.Ratio]) -> str:
    """How many times as fast as stock a side is, by phase, in words."""
    found = ", ".join(f"{phase} {_times(over_stock[phase])}" for phase in ("decode", "prefill"))
    return f"{side} against stock: {found}"


def _times(ratio: timing.Ratio) -> str:
    lower, upper = ratio.quartiles
    about = f"{lower:.3f} to {upper:.3f}"
    if (rounds := len(ratio.values)) < timing.LEAST_ROUNDS:
        about = f"{rounds} round{'s' * (rounds > 1)}"
    if ratio.same:
        about = "the same, as no norm was ours"
    return f"noise ({about})" if ratio.is_noise else f"{ratio.median:.3f} times as fast ({about})"


def relative_difference(stock: mx.array, other: mx.array) -> float:
    """The largest difference over the largest finite magnitude in ``stock``.

    Some models mask tokens with an infinity. Equal infinities are no difference; an infinity on
    one side only gives NaN.
    """
    stock, other = stock.astype(mx.float32), other.astype(mx.float32)
    largest = mx.max(mx.where(mx.isfinite(stock), mx.abs(stock), 0))
    difference = mx.where(stock == other, 0, mx.abs(stock - other))
    worst = mx.max(mx.where(mx.isinf(difference), mx.nan, difference))
    return mx.where(worst == 0, 0, worst / largest).item()
