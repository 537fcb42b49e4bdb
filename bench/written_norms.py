"""Times norms that models write in MLX's operations, as they are and patched.

Layers with a written norm are called without and within mlx_norms.patched(), in turns: many calls
in one mx.eval, whose time, by the host's clock, includes building the graph. "of a copy" is the
time of mx.negative on the same array over that of the patched call.
"""

from __future__ import annotations

import sys

import mlx.core as mx
import mlx.nn as nn

import mlx_norms
from harness import clocks
from harness.providers import Calls, copies, make_room, sets_needed
from harness.script import Script
from harness.tables import red_if, table
from mlx_norms._measure import timing

EPS = 1e-6
COLUMNS = ["layer", "dtype", "shape", "provider", "us", "us_lower", "us_upper"]
COLUMNS += ["stock_over_patched", "ratio_lower", "ratio_upper"]


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


F32, BF16 = mx.float32, mx.bfloat16
ROWS, FEW, IMAGE = (4096, 4096), (1, 1, 4096), (1, 96, 256, 256)
CASES = (
    (RMSNorm, F32, ROWS),
    (RMSNorm, BF16, ROWS),
    (WideRMSNorm, BF16, ROWS),
    (WideRMSNorm, BF16, FEW),
    (LayerNorm, F32, ROWS),
    (UnitNorm, F32, ROWS),
    (ChannelNorm, F32, IMAGE),
    (ChannelNorm, BF16, IMAGE),
)


def providers(layer: type, dtype: mx.Dtype, shape: tuple[int, ...]) -> dict:
    module = layer(shape[-1])
    module.set_dtype(dtype)
    mx.eval(module)
    x = mx.random.normal(shape).astype(dtype)
    sets = copies([x], sets_needed(x.nbytes))
    calls = Calls(module, sets, output_bytes=x.nbytes)
    return {
        "stock": clocks.HostClock(calls, building=True),
        "patched": clocks.HostClock(calls, building=True, context=mlx_norms.patched),
        "copy": clocks.HostClock(Calls(mx.negative, sets, output_bytes=x.nbytes), building=True),
    }


def main() -> int:
    script = Script(__doc__, COLUMNS, device="default", rounds=15)
    args = script.begin()
    headings = ("stock", "patched", "stock / patched", "of a copy")
    found = table("µs a call, median (quartiles)", ("layer", "dtype", "shape"), headings)
    for layer, dtype, shape in script.tracked(CASES):
        make_room()
        of = providers(layer, dtype, shape)
        seconds = timing.measure(of, rounds=args.rounds, sample_seconds=0.02)
        gain = seconds["stock"].over(seconds["patched"])
        name, short = layer.__name__, str(dtype).split(".")[-1]
        for side, samples in seconds.items():
            us = [1e6 * value for value in (samples.median, *samples.quartiles)]
            ratio = [gain.median, *gain.quartiles] if side == "patched" else ["", "", ""]
            script.write(name, short, "x".join(map(str, shape)), side, *us, *ratio)
        found.add_row(
            *(name, short, "×".join(map(str, shape))),
            *(seconds[side].spread(".1f", 1e6) for side in ("stock", "patched")),
            red_if(gain.median < 1, gain.spread(".2f")),
            seconds["copy"].over(seconds["patched"]).spread(".2f"),
        )
    script.console.print(found)
    return 0


if __name__ == "__main__":
    sys.exit(main())
