"""The environment variable that patches a process as ``mlx_norms`` is imported."""

from __future__ import annotations

import os

from .apply import patch

VARIABLE = "MLX_NORMS_PATCH"


def patch_as_asked() -> None:
    """Patch the process if the environment variable says so.

    Raises:
        ValueError: If it has a value that means nothing.
    """
    value = os.environ.get(VARIABLE)
    if not value:
        return
    if value not in ("1", "projections"):
        raise ValueError(f"[mlx_norms] {VARIABLE} must be 1 or projections but is {value}.")
    patch(projections=value == "projections")
