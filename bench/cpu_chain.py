"""Norms of one row of 4096 in a chain on the CPU: the cost of a call besides its arithmetic.

A side is 64 calls, each on the result of the call before, and likewise of 64 negatives, which the
ratios are over.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator

import mlx.core as mx

import mlx_norms
from harness.configs import DTYPES, EPS
from harness.providers import Calls
from harness.suite import Case, Suite

CALLS = 64
LENGTH = 4096


def chain(call, x) -> Calls:
    def run():
        y = x
        for _ in range(CALLS):
            y = call(y)
        return y

    return Calls(run, [[]])


def sides(dtype: mx.Dtype) -> dict[str, Calls]:
    """Chains by name; add+rms passes both the norm and the sum on."""
    x, weight = mx.random.normal((2, LENGTH)).astype(dtype)
    x = x[None]
    mx.eval(x, weight)
    return {
        "negative": chain(mx.negative, x),
        "rms": chain(lambda y: mlx_norms.rms_norm(y, weight, EPS), x),
        "layer": chain(lambda y: mlx_norms.layer_norm(y, weight, weight, EPS), x),
        "add+rms": chain(lambda pair: mlx_norms.add_rms_norm(*pair, weight, EPS), (x, x)),
    }


def cases(args: argparse.Namespace) -> Iterator[Case]:
    for name, dtype in DTYPES.items():
        yield Case(dict(dtype=name), lambda dtype=dtype: sides(dtype))


SUITE = Suite(
    __doc__, ("dtype",), cases, ("many",), base="negative", device="cpu", sample_seconds=0.02
)
