"""The variants of a model run that are compared, and the difference between their results."""

from __future__ import annotations

import contextlib
import functools

import mlx.core as mx

import mlx_norms

CONTEXTS = {
    "stock": contextlib.nullcontext,
    "patched": mlx_norms.patched,
    "projections": functools.partial(mlx_norms.patched, projections=True),
}
# Stock a second time tells what a difference is worth.
BESIDE_STOCK = {
    "stock": CONTEXTS["stock"],
    "stock again": CONTEXTS["stock"],
    "patched": CONTEXTS["patched"],
    "fuse=False": functools.partial(mlx_norms.patched, fuse=False),
}


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
