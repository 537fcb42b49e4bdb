"""Tests of what MLX has, or does otherwise, since one of its releases."""

import mlx.core as mx
import pytest
from packaging.version import Version

MLX = Version(mx.__version__)


def since(release: str):
    """Marks a test that older MLX, which our wheels are for, too, would not pass by itself."""
    return pytest.mark.applies(Version(release) <= MLX)


# Quantized experts: mlx_lm 0.32.2 names an argument that MLX 0.32.2 does not have.
EXPERTS = pytest.mark.applies(str(MLX) != "0.32.2")
