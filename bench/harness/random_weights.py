"""Random weights for the blocks of models."""

from __future__ import annotations

import math

import mlx.core as mx
import mlx.nn as nn
from mlx.utils import tree_map_with_path

_DEVIATION = 0.02  # of biases, and of the norms' weights from 1


def randomize(module: nn.Module, dtype: mx.Dtype, *, float32: tuple[str, ...] = ()) -> None:
    """Draw all floating parameters; those whose path ends in one of ``float32`` stay float32."""

    def weight(path: str, like: mx.array) -> mx.array:
        if not mx.issubdtype(like.dtype, mx.floating):
            return like
        values = mx.random.normal(like.shape)
        if mx.all(like == 1).item():
            values = 1 + _DEVIATION * values
        else:
            fan = math.prod(like.shape[1:]) if like.ndim > 1 else 0
            values *= fan**-0.5 if fan else _DEVIATION
        return values if path.endswith(float32 or "/") else values.astype(dtype)

    module.update(tree_map_with_path(weight, module.parameters()))
    mx.eval(module.parameters())
