"""Norms as models write them, with what stands around, as the code is and after a pass.

Functions with a norm and what is around it are compiled (mx.compile), differentiated in a compiled
function, and evaluated, without and within mlx_norms.patched(), and called without and with
mlx_norms.fuse; layers that write their norm in MLX's operations are evaluated. A ratio is of stock,
or of a copy (mx.negative of the first array), over the pass.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import mlx.core as mx
import mlx.nn as nn

import mlx_norms
from harness import providers
from harness.suite import Case, Suite

EPS = 1e-6
BATCH, TOKENS, WIDTH = 2, 2048, 3072
ROWS, MODULATION, WEIGHT = (BATCH, TOKENS, WIDTH), (BATCH, 1, 3 * WIDTH), (WIDTH,)
F32, BF16 = mx.float32, mx.bfloat16


def written_rms(x, w):
    wide = x.astype(mx.float32)
    wide = wide * mx.rsqrt(wide.square().mean(-1, keepdims=True) + EPS)
    return w * wide.astype(x.dtype)


def written_layer_norm(x, w):
    wide = x.astype(mx.float32)
    mean = wide.mean(-1, keepdims=True)
    y = (wide - mean) * mx.rsqrt(wide.var(-1, keepdims=True) + EPS)
    return y.astype(x.dtype) * w


def modulated(x, m):
    shift, scale, _ = mx.split(m, 3, axis=-1)
    return mx.fast.layer_norm(x, None, None, EPS) * (1 + scale) + shift


def gated_sum_then_modulated(x, y, m):
    gate, shift, scale = mx.split(m, 3, axis=-1)
    h = x + gate * y
    return h + mx.fast.layer_norm(h, None, None, EPS) * (1 + scale) + shift


def gated(x, z, w):
    return mx.fast.rms_norm(x, w, EPS) * (z * mx.sigmoid(z))


def norm_add_norm(x, r, v, w):
    h = r + mx.fast.rms_norm(x, v, EPS)
    return h + mx.fast.rms_norm(h, w, EPS)


class _Weighted(nn.Module):
    def __init__(self, dims: int):
        super().__init__()
        self.weight = mx.ones((dims,))


class RMSNorm(_Weighted):
    def __call__(self, x):
        return self.weight * (x * mx.rsqrt(mx.mean(mx.square(x), axis=-1, keepdims=True) + EPS))


class WideRMSNorm(_Weighted):
    """As Hugging Face's llama."""

    def __call__(self, x):
        wide = x.astype(mx.float32)
        wide = wide * mx.rsqrt((wide**2).mean(-1, keepdims=True) + EPS)
        return self.weight * wide.astype(x.dtype)


class LayerNorm(_Weighted):
    def __call__(self, x):
        mean = mx.mean(x, axis=-1, keepdims=True)
        return (x - mean) / mx.sqrt(mx.var(x, axis=-1, keepdims=True) + EPS) * self.weight


class UnitNorm(_Weighted):
    def __call__(self, x):
        return x / mx.maximum(mx.linalg.norm(x, axis=-1, keepdims=True), EPS)


class ChannelNorm(_Weighted):
    """Over the channels, which come first."""

    def __call__(self, x):
        return x / mx.sqrt(mx.mean(x**2, axis=1, keepdims=True) + EPS)


def gradient(code):
    def loss(*arrays):
        return code(*arrays).astype(mx.float32).square().sum()

    return lambda *arrays: mx.grad(loss, argnums=list(range(len(arrays))))(*arrays)


WAYS = {
    # What makes the stock function, and what makes ours while patched.
    "compiled": [mx.compile] * 2,
    "compiled gradient": [lambda code: mx.compile(lambda *a: gradient(code)(*a))] * 2,
    "evaluated": [lambda code: code] * 2,
    "fuse": [lambda code: code, mlx_norms.fuse],
}


@dataclass(frozen=True)
class Written:
    """A function of arrays of these shapes, or the class of a layer of the first one's length."""

    code: Callable
    shapes: tuple[tuple[int, ...], ...]
    dtypes: tuple[mx.Dtype, ...] = (F32, BF16)

    @property
    def ways(self) -> list[str]:
        return ["evaluated"] if isinstance(self.code, type) else [*WAYS]

    def made(self, dtype: mx.Dtype) -> Callable:
        if not isinstance(self.code, type):
            return self.code
        layer = self.code(self.shapes[0][-1])
        layer.set_dtype(dtype)
        mx.eval(layer)
        return layer


CASES = (
    Written(written_rms, (ROWS, WEIGHT)),
    Written(written_layer_norm, (ROWS, WEIGHT)),
    Written(modulated, (ROWS, MODULATION)),
    Written(gated_sum_then_modulated, (ROWS, ROWS, MODULATION)),
    Written(gated, (ROWS, ROWS, WEIGHT)),
    Written(norm_add_norm, (ROWS, ROWS, WEIGHT, WEIGHT)),
    Written(RMSNorm, ((4096, 4096),)),
    Written(WideRMSNorm, ((4096, 4096),), (BF16,)),
    Written(WideRMSNorm, ((1, 1, 4096),), (BF16,)),
    Written(LayerNorm, ((4096, 4096),), (F32,)),
    Written(UnitNorm, ((4096, 4096),), (F32,)),
    Written(ChannelNorm, ((1, 96, 256, 256),)),
)


def case(written: Written, dtype: mx.Dtype, way: str) -> Case:
    def sides() -> dict:
        providers.make_room()
        code, (stock, ours) = written.made(dtype), WAYS[way]
        arrays = [mx.random.normal(shape).astype(dtype) for shape in written.shapes]
        functions = {"stock": stock(code), "copy": lambda x, *_: mx.negative(x)}
        with mlx_norms.patched():
            functions["pass"] = ours(code)
            mx.eval(functions["pass"](*arrays))
        sizes = dict(of_bytes=sum(a.nbytes for a in arrays), output_bytes=arrays[0].nbytes)
        found = providers.in_turn(functions, arrays, **sizes)
        if way == "evaluated":
            found["pass"].context = mlx_norms.patched
        return found

    shape = "x".join(map(str, written.shapes[0]))
    about = dict(code=written.code.__name__, dtype=str(dtype).split(".")[-1], shape=shape, way=way)
    return Case(about, sides, least=dict(stock=1))


def cases(args: argparse.Namespace) -> Iterator[Case]:
    for written in CASES:
        for dtype in written.dtypes:
            for way in written.ways:
                yield case(written, dtype, way)


LABELS = ("code", "dtype", "shape", "way")
SUITE = Suite(__doc__, LABELS, cases, ("many",), base="pass", device="default")
