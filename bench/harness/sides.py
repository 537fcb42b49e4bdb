"""The sides of what is timed beside stock."""

from __future__ import annotations

import functools

import mlx_norms
from mlx_norms.commands._sides import CONTEXTS

# Stock a second time tells what a difference is worth.
BESIDE_STOCK = {
    "stock": CONTEXTS["stock"],
    "stock again": CONTEXTS["stock"],
    "patched": CONTEXTS["patched"],
    "fuse=False": functools.partial(mlx_norms.patched, fuse=False),
}
