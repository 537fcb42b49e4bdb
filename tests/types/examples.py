"""How the package is used, for type checkers: CI runs mypy and pyright on it."""

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import assert_type

import mlx.core as mx
import mlx.nn as nn

import mlx_norms

x, w = mx.ones((2, 8)), mx.ones(8)

assert_type(mlx_norms.rms_norm(x, w), mx.array)
assert_type(mlx_norms.rms_norm(x, gate=x, activation="silu", rounding="late"), mx.array)
assert_type(mlx_norms.layer_norm(x, scale=0.5, shift=w, dtype=mx.bfloat16), mx.array)
assert_type(mlx_norms.l2_norm(x, stream=mx.cpu), mx.array)
assert_type(mlx_norms.add_rms_norm(x, x, w, factor=2.0), tuple[mx.array, mx.array])
assert_type(mlx_norms.rms_norms([x, x], [w, w]), list[mx.array])
assert_type(mlx_norms.rms_norms([x, x], (None, x), multipliers=[1, 0.5]), list[mx.array])
assert_type(mlx_norms.l2_norms((x, x), [1.0, 2.0], stream=mx.cpu), list[mx.array])
assert_type(mlx_norms.norm_rope(x, w, layout="BLHD", offset=x, freqs=w), mx.array)
assert_type(
    mlx_norms.qk_norm_rope(x, x, None, None, layout="BLHD", offset=0, dims=8),
    tuple[mx.array, mx.array],
)
assert_type(
    mlx_norms.qk_norm_rope(x, x, w, w, layout="BHLD", offset=3, v=x),
    tuple[mx.array, mx.array, mx.array],
)
assert_type(mlx_norms.group_norm(x, 4, activation="gelu"), mx.array)
assert_type(mlx_norms.matmul(x, x.T, kernel="auto"), mx.array)

# Where the result depends on the arguments.
assert_type(mlx_norms.batch_norm(x, w, w, mean=None, var=None), mx.array)
assert_type(mlx_norms.batch_norm(x, w, w, mean=w, var=w), mx.array)
assert_type(
    mlx_norms.batch_norm(x, w, w, mean=w, var=w, training=True),
    tuple[mx.array, mx.array, mx.array],
)
assert_type(mlx_norms.rms_norm_linear(x, w, mx.ones((4, 8))), mx.array)
assert_type(mlx_norms.rms_norm_linear(x, w, mx.ones((4, 8)), residual=x), tuple[mx.array, mx.array])
assert_type(
    mlx_norms.layer_norm_linear(x, w, None, [mx.ones((4, 8)), mx.ones((4, 8))], gated=True),
    mx.array,
)


@mlx_norms.fuse
def block(x: mx.array, r: mx.array, *, eps: float = 1e-5) -> mx.array:
    return mx.fast.rms_norm(x + r, None, eps)


assert_type(block(x, x, eps=1e-6), mx.array)


class Model(nn.Module):
    def __call__(self, x: mx.array) -> mx.array:
        return mlx_norms.rms_norm(x)


model = Model()
mlx_norms.patch(model)
mlx_norms.unpatch(model)
assert_type(mlx_norms.patched(fuse=False), AbstractContextManager[None])
assert_type(mlx_norms.report(), mlx_norms.Report)
assert_type(mlx_norms.report().calls, int)
assert_type(mlx_norms.report().reasons, dict[str, int])
assert_type(mlx_norms.report().written, dict[str, int])
assert_type(mlx_norms.report().left, dict[str, str])
assert_type(mlx_norms.warm_up(model, x), mlx_norms.WarmUp)
assert_type(mlx_norms.warm_up(lambda: [x], progress=False).kernels, int)
norm: Callable[..., mx.array] = mlx_norms.ladders.layer_norm
