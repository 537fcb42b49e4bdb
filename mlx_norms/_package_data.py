"""The error text for a data file of this package that cannot be read."""

from __future__ import annotations

from pathlib import Path


def damaged(file: Path, error: Exception) -> str:
    """One sentence that names ``file`` and says how to restore it."""
    return (
        f"mlx_norms is not whole: {file} is missing or damaged "
        f"({type(error).__name__}: {error}). Install it again, with pip's --force-reinstall."
    )
