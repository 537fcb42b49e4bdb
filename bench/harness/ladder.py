"""The two ladders, layer norm and float32 matmul, with a kernel per rung."""

from __future__ import annotations

from collections.abc import Callable

import mlx.core as mx

from mlx_norms import ladders
from mlx_norms.commands import CommandError

from .configs import EPS


def functions(op: str, dtype: mx.Dtype) -> dict[str, Callable]:
    """The rungs that take a dtype, of the arrays of a layer norm or of a product, and MLX's op."""
    if mx.default_device() == mx.cpu:
        raise CommandError("The rungs of the ladders are GPU kernels, and this is the CPU.")
    if op == "sgemm":
        rungs = {r.name: lambda a, b, r=r: ladders.sgemm(a, b, rung=r.name) for r in ladders.SGEMM}
        return rungs | {"mlx": mx.matmul}
    found = {
        r.name: lambda x, w, b, r=r: ladders.layer_norm(x, w, b, EPS, rung=r.name)
        for r in ladders.LAYER_NORM
        if dtype in r.dtypes
    }
    return found | {"mx.fast": lambda x, w, b: mx.fast.layer_norm(x, w, b, EPS)}


FIXES = {rung.name: rung.fixes for rung in (*ladders.LAYER_NORM, *ladders.SGEMM)}
