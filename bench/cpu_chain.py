"""Times norms of one row of 4096 in a chain on the CPU: the cost of a call besides its arithmetic.

A sample is many evals of 64 calls, each on the result of the call before, and likewise of 64
negatives. Prints microseconds per call and the ratio to a negative: medians with quartiles.
"""

from __future__ import annotations

import mlx.core as mx

import mlx_norms
from harness.configs import DTYPES, EPS
from harness.script import Script
from harness.tables import table
from mlx_norms._measure import timing

CALLS = 64
LENGTH = 4096


def chain(call, x):
    def run():
        y = x
        for _ in range(CALLS):
            y = call(y)
        return y

    return run


def providers(dtype: mx.Dtype) -> dict:
    """Chains by name; add+rms passes both the norm and the sum on."""
    x, weight = mx.random.normal((2, LENGTH)).astype(dtype)
    x = x[None]
    mx.eval(x, weight)

    def add_rms(pair):
        return mlx_norms.add_rms_norm(*pair, weight, EPS)

    return {
        "negative": chain(mx.negative, x),
        "rms": chain(lambda y: mlx_norms.rms_norm(y, weight, EPS), x),
        "layer": chain(lambda y: mlx_norms.layer_norm(y, weight, weight, EPS), x),
        "add+rms": chain(add_rms, (x, x)),
    }


def main() -> None:
    script = Script(__doc__, device="cpu", rounds=25)
    args = script.begin()
    found = table("", ("op", "dtype", "µs per call", "over a negative (quartiles)"))
    for name, dtype in DTYPES.items():
        seconds = timing.measure(providers(dtype), rounds=args.rounds)
        for op, samples in seconds.items():
            ratio = samples.over(seconds["negative"])
            found.add_row(op, name, f"{samples.median / CALLS * 1e6:.2f}", ratio.spread(".2f"))
    script.console.print(found)
