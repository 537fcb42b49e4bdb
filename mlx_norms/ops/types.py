"""Types of arguments that several ops take."""

from __future__ import annotations

from typing import Literal

import mlx.core as mx

Term = mx.array | float
Rounding = Literal["early", "late"]
Activation = Literal["silu", "sigmoid", "gelu", "relu2"]
Layout = Literal["BLHD", "BHLD"]
