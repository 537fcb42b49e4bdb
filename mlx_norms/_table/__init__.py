"""The ops of this package: operands, options, MLX's chain of ops, and what is exact.

What tests, fuzzes, counts, times or checks the ops reads them here.
"""

from . import patched, rows  # noqa: F401
from .op import EPS, OPS, Op, op

__all__ = ["EPS", "OPS", "Op", "op"]
