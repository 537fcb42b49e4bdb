"""The variants of a model run that are compared: stock, patched, with projections."""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import functools
from collections.abc import Mapping

import mlx.core as mx

import mlx_norms

from .._measure import timing

NULL = "stock again"
CONTEXTS = {
    "stock": contextlib.nullcontext,
    "patched": mlx_norms.patched,
    "projections": functools.partial(mlx_norms.patched, projections=True),
    NULL: contextlib.nullcontext,
}
NOTE = "Projections need a GPU: on the CPU that side would be what patched is, and is left out."


def add_options(parser: argparse.ArgumentParser) -> None:
    group = parser.add_mutually_exclusive_group()
    group.add_argument(
        "--projections",
        action="store_true",
        help="measure a third side, patched(projections=True): norms computed with the products "
        "that take them, in decoding, on a GPU",
    )
    group.add_argument(
        "--null",
        action="store_true",
        help="measure stock against itself: what is seen there is chance",
    )


def chosen(args: argparse.Namespace) -> tuple[str, ...]:
    """The names of the requested sides, stock first; projections only on a GPU."""
    if args.null:
        return "stock", NULL
    third = args.projections and mx.default_device() != mx.cpu
    return ("stock", "patched", *["projections"] * third)


def note(args: argparse.Namespace) -> str | None:
    """Why a requested side is not measured."""
    return NOTE if args.projections and "projections" not in chosen(args) else None


def context(side: str) -> contextlib.AbstractContextManager:
    """The context in which a model runs as this side."""
    return CONTEXTS[side]()


def marked(ratio: timing.Ratio, report: mlx_norms.Report) -> timing.Ratio:
    """The ratio of a side and stock: they are the same if no norm was ours by ``report``."""
    ours = report.calls - report.passed_on + report.projections + report.products
    return dataclasses.replace(ratio, same=not ours)


def pace(side: str, over_stock: Mapping[str, timing.Ratio]) -> str:
    """How many times as fast as stock a side is, by phase, in words."""
    found = ", ".join(f"{phase} {_times(over_stock[phase])}" for phase in ("decode", "prefill"))
    return f"{side} against stock: {found}"


def _times(ratio: timing.Ratio) -> str:
    if ratio.same:
        return f"{timing.SAME} (no norm was ours)"
    around = "{:.3f} to {:.3f}".format(*ratio.interval)
    if not ratio.differs:
        return f"{timing.SAME} ({around})"
    return f"{ratio.median:.3f} times as fast ({around})"


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
