"""A Metal GPU capture of a few calls, to be opened in Xcode."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator

import mlx.core as mx

from mlx_norms._measure import machine


def obstacle(path: str) -> str | None:
    """Why a capture into ``path`` is not possible, and what it needs; None if it is."""
    folder = os.path.dirname(os.path.abspath(path))
    if machine.backend() != "metal":
        return "a capture is Metal's, and there is no Metal device here: it needs a Mac's GPU"
    if os.environ.get("MTL_CAPTURE_ENABLED") != "1":
        return (
            "Metal captures only where it is told to: start the command with MTL_CAPTURE_ENABLED=1"
        )
    if not path.endswith(".gputrace"):
        return "the name of a capture must end in .gputrace"
    if os.path.exists(path):
        return (
            "it exists already, and Metal writes over no capture: remove it, or take another name"
        )
    if not os.path.isdir(folder):
        return f"there is no folder {folder}"
    return None


@contextlib.contextmanager
def captured(path: str) -> Iterator[None]:
    """Capture everything that runs on the GPU within the ``with`` block."""
    mx.synchronize()
    mx.metal.start_capture(path)
    try:
        yield
        mx.synchronize()
    finally:
        mx.metal.stop_capture()
