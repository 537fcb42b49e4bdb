"""One call of quantized_matmul, and its float64 truth."""

from dataclasses import dataclass

import mlx.core as mx
import numpy as np

import mlx_norms
from mlx_norms._table.exact import result_type

from .linear_case import Quantized, matrix, metal_rows
from .norm_case import short
from .oracle import Truth, exact, unit_roundoff

MOST_ROWS = 16  # of one launch, by tiles


@dataclass
class Product:
    """x times a quantized matrix, plus a residual; by tiles or by lanes."""

    x: mx.array
    weight: Quantized
    residual: mx.array | None = None
    tiles: bool = mx.cuda.is_available()

    def __call__(self):
        w = self.weight
        return mlx_norms.quantized_matmul(
            self.x, *w.parts, group_size=w.group_size, bits=w.bits, residual=self.residual
        )

    def stock(self):
        """The same by MLX."""
        w = self.weight
        y = mx.quantized_matmul(self.x, *w.parts, group_size=w.group_size, bits=w.bits)
        return y if self.residual is None else self.residual + y

    @property
    def is_launch(self):
        """Whether it is one launch on a GPU, else MLX's product."""
        dtypes = {a.dtype for a in (self.x, *self.weight.parts[1:])}
        if self.residual is not None:
            dtypes.add(self.residual.dtype)
        most = MOST_ROWS if self.tiles else metal_rows()
        return len(dtypes) == 1 and self.x.size // self.x.shape[-1] <= most

    def truth(self, backend, note=""):
        """A launch adds up floats, in fewer steps than elements, with 1 + q / 2^bits for q.

        MLX's product may do so in the output's dtype. What a residual is added to is rounded.
        """
        x = exact(self.x)
        values, sizes = matrix(self.weight)
        dtype = result_type(self.x.dtype, self.weight.parts[1].dtype)
        launched = backend != "cpu" and self.is_launch
        if launched:
            _, scale, _ = self.weight.levels()
            sizes = sizes + 2 * np.abs(scale) * 2**self.weight.bits
        value, size = x @ values.T, np.abs(x) @ sizes.T
        terms, unit = (16, mx.float32) if launched else (x.shape[-1] + 2, dtype)
        slack = terms * unit_roundoff(unit) * size
        if self.residual is not None:
            slack = slack + unit_roundoff(dtype) * (np.abs(value) + slack)
            value = value + exact(self.residual)
            dtype = result_type(dtype, self.residual.dtype)
        return Truth(value, slack, dtype, f"{self} {note}")

    def __str__(self):
        w = self.weight
        parts = [f"{short(self.x.dtype)}{list(self.x.shape)}"]
        parts.append(f"{w.bits}/{w.group_size} {short(w.parts[1].dtype)}{list(w.shape)}")
        if self.residual is not None:
            parts.append(f"residual:{short(self.residual.dtype)}{list(self.residual.shape)}")
        return f"quantized_matmul({', '.join(parts)})"
