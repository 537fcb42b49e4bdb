"""Drop-in norm layers for ``mlx.nn`` models, and their replacement inside a model."""

from .group_layers import BatchNorm, GroupNorm, InstanceNorm
from .layers import LayerNorm, RMSNorm
from .replacement import Replaced, replace

__all__ = [
    "BatchNorm",
    "GroupNorm",
    "InstanceNorm",
    "LayerNorm",
    "RMSNorm",
    "Replaced",
    "replace",
]
