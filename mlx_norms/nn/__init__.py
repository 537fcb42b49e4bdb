"""Drop-in norm layers for ``mlx.nn`` models, and their replacement inside a model."""

from .layers import LayerNorm, RMSNorm
from .replacement import Replaced, replace

__all__ = ["LayerNorm", "RMSNorm", "Replaced", "replace"]
