"""Times norms with what code has around them, as the code is and after a pass over its graph.

Each piece of code is compiled (mx.compile), differentiated in a compiled function, and evaluated,
without and within mlx_norms.patched(), and called without and with mlx_norms.fuse, in turns: many
calls in one mx.eval, whose time, by the host's clock, includes building the graph.
"""

from __future__ import annotations

import contextlib
import sys

import mlx.core as mx

import mlx_norms
from harness import clocks
from harness.providers import Calls, copies, make_room, sets_needed
from harness.script import Script
from harness.tables import red_if, table
from mlx_norms._measure import timing

EPS = 1e-6
COLUMNS = ["code", "dtype", "way", "provider", "us", "us_lower", "us_upper"]
COLUMNS += ["stock_over_pass", "ratio_lower", "ratio_upper"]
BATCH, TOKENS, WIDTH = 2, 2048, 3072
ROWS, MODULATION, WEIGHT = (BATCH, TOKENS, WIDTH), (BATCH, 1, 3 * WIDTH), (WIDTH,)


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


CASES = (
    (written_rms, (ROWS, WEIGHT)),
    (written_layer_norm, (ROWS, WEIGHT)),
    (modulated, (ROWS, MODULATION)),
    (gated_sum_then_modulated, (ROWS, ROWS, MODULATION)),
    (gated, (ROWS, ROWS, WEIGHT)),
    (norm_add_norm, (ROWS, ROWS, WEIGHT, WEIGHT)),
)
DTYPES = (mx.float32, mx.bfloat16)


def gradient(code):
    def loss(*arrays):
        return code(*arrays).astype(mx.float32).square().sum()

    return lambda *arrays: mx.grad(loss, argnums=list(range(len(arrays))))(*arrays)


def ways(code) -> dict:
    """By their names: what makes the stock function, and what makes ours while patched."""
    return {
        "compiled": (lambda: mx.compile(code), lambda: mx.compile(code)),
        "compiled gradient": [lambda: mx.compile(lambda *a: gradient(code)(*a))] * 2,
        "evaluated": (lambda: code, lambda: code),
        "fuse": (lambda: code, lambda: mlx_norms.fuse(code)),
    }


def main() -> int:
    script = Script(__doc__, COLUMNS, device="default", rounds=15)
    args = script.begin()
    headings = ("stock", "with the pass", "stock / pass")
    found = table("µs a call, median (quartiles)", ("code", "dtype", "way"), headings)
    for (code, shapes), dtype in script.tracked([(c, d) for c in CASES for d in DTYPES]):
        make_room()
        arrays = [mx.random.normal(shape).astype(dtype) for shape in shapes]
        mx.eval(arrays)
        sets = copies(arrays, sets_needed(sum(a.nbytes for a in arrays)))
        short = str(dtype).split(".")[-1]
        for way, (stock, ours) in ways(code).items():
            functions = {"stock": stock()}
            mx.eval(functions["stock"](*arrays))
            with mlx_norms.patched():
                functions["pass"] = ours()
                mx.eval(functions["pass"](*arrays))
            clocked = {}
            for side, function in functions.items():
                is_patched = side == "pass" and way == "evaluated"
                context = mlx_norms.patched if is_patched else contextlib.nullcontext
                calls = Calls(function, sets, output_bytes=arrays[0].nbytes)
                clocked[side] = clocks.HostClock(calls, building=True, context=context)
            seconds = timing.measure(clocked, rounds=args.rounds, sample_seconds=0.02)
            gain = seconds["stock"].over(seconds["pass"])
            for side, samples in seconds.items():
                us = [1e6 * value for value in (samples.median, *samples.quartiles)]
                ratio = [gain.median, *gain.quartiles] if side == "pass" else ["", "", ""]
                script.write(code.__name__, short, way, side, *us, *ratio)
            found.add_row(
                *(code.__name__, short, way),
                *(seconds[side].spread(".1f", 1e6) for side in ("stock", "pass")),
                red_if(gain.median < 1, gain.spread(".2f")),
            )
    script.console.print(found)
    return 0


if __name__ == "__main__":
    sys.exit(main())
