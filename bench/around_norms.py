"""Times norms as models write them, with what stands around, as the code is and after a pass.

Functions with a norm and what is around it are compiled (mx.compile), differentiated in a compiled
function, and evaluated, without and within mlx_norms.patched(), and called without and with
mlx_norms.fuse; layers that write their norm in MLX's operations are evaluated. The sides take
turns: many calls in one mx.eval, whose time, by the host's clock, includes building the graph.
"copy" is mx.negative of the first array.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from dataclasses import dataclass

import mlx.core as mx
import mlx.nn as nn

import mlx_norms
from harness import beside_stock, clocks
from harness.providers import Calls, copies, make_room, sets_needed
from harness.script import Script
from mlx_norms._measure import timing

EPS = 1e-6
COLUMNS = ("code", "dtype", "shape", "way", *beside_stock.COLUMNS)
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
class Case:
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
    Case(written_rms, (ROWS, WEIGHT)),
    Case(written_layer_norm, (ROWS, WEIGHT)),
    Case(modulated, (ROWS, MODULATION)),
    Case(gated_sum_then_modulated, (ROWS, ROWS, MODULATION)),
    Case(gated, (ROWS, ROWS, WEIGHT)),
    Case(norm_add_norm, (ROWS, ROWS, WEIGHT, WEIGHT)),
    Case(RMSNorm, ((4096, 4096),)),
    Case(WideRMSNorm, ((4096, 4096),), (BF16,)),
    Case(WideRMSNorm, ((1, 1, 4096),), (BF16,)),
    Case(LayerNorm, ((4096, 4096),), (F32,)),
    Case(UnitNorm, ((4096, 4096),), (F32,)),
    Case(ChannelNorm, ((1, 96, 256, 256),)),
)


def sides(code: Callable, way: str, arrays: list[mx.array]) -> dict[str, clocks.HostClock]:
    stock, ours = WAYS[way]
    functions = {"stock": stock(code), "copy": lambda x, *_: mx.negative(x)}
    mx.eval(functions["stock"](*arrays))
    with mlx_norms.patched():
        functions["pass"] = ours(code)
        mx.eval(functions["pass"](*arrays))
    sets, found = copies(arrays, sets_needed(sum(a.nbytes for a in arrays))), {}
    for side, function in functions.items():
        is_patched = side == "pass" and way == "evaluated"
        context = mlx_norms.patched if is_patched else contextlib.nullcontext
        calls = Calls(function, sets, output_bytes=arrays[0].nbytes)
        found[side] = clocks.HostClock(calls, building=True, context=context)
    return found


def main() -> None:
    script = Script(__doc__, COLUMNS, device="default", rounds=15)
    args = script.begin()
    title, labels = "µs a call, median (quartiles)", ("code", "dtype", "shape", "way")
    shown = dict(sides=("stock", "pass"), over=("stock", "copy"), ours="pass", form=".1f")
    report = beside_stock.Report(script, title, labels, **shown)
    for case, dtype in script.tracked((case, dtype) for case in CASES for dtype in case.dtypes):
        code = case.made(dtype)
        arrays = [mx.random.normal(shape).astype(dtype) for shape in case.shapes]
        mx.eval(arrays)
        for way in case.ways:
            make_room()
            of = sides(code, way, arrays)
            seconds = timing.measure(of, rounds=args.rounds, sample_seconds=0.02)
            shape = "x".join(map(str, case.shapes[0]))
            about = (case.code.__name__, str(dtype).split(".")[-1], shape, way)
            report.add(about, seconds, *about)
    report.print()
