"""Times a call over how many calls are evaluated together, with all of their outputs kept.

    python bench outputs_at_once [--csv FILE]

Times add + rms norm by this package and by MLX's two ops, and MLX's add alone. With tens of GB of
outputs in one mx.eval, buffers of some sizes take twice the time, whichever kernel writes them.
--device cpu tries the script with few calls of tiny shapes.
"""

from __future__ import annotations

import itertools

import mlx.core as mx

from harness.configs import OPS, Config
from harness.script import Script
from harness.tables import table
from mlx_norms._measure import timing

SHAPES = ((512, 8192), (4096, 768), (4096, 4096))
CALLS = (64, 400, 1600)
COLUMNS = ["dtype", "rows", "length", "calls", "output_gb", "side", "us", "us_lower", "us_upper"]


def sides(rows: int, length: int) -> dict[str, timing.Runs]:
    op, inputs = OPS["add_rms"], Config("add_rms", "bfloat16", rows, length).inputs()
    mx.eval(inputs)

    def together(call) -> timing.Runs:
        return timing.Runs(lambda count: mx.eval([call(*inputs) for _ in range(count)]))

    calls = {"ours": op.ours, "add, mx.fast": op.fast, "add alone": lambda x, r, w: (x + r,)}
    return {side: together(call) for side, call in calls.items()}


def main() -> None:
    script = Script(__doc__, COLUMNS, rounds=9)
    args = script.begin()
    headings = ("bf16", "calls in an eval", "GB of outputs", "", "µs")
    found = table("µs per call, median (quartiles)", headings)
    shapes, counts = ([(16, 96)], CALLS[:1]) if script.tiny else (SHAPES, CALLS)
    for (rows, length), calls in itertools.product(shapes, counts):
        # The warm-up allocates the memory from the driver.
        seconds = timing.measure(sides(rows, length), rounds=args.rounds, count=calls)
        mx.clear_cache()
        for side, samples in seconds.items():
            outputs = 1 if side == "add alone" else 2
            gigabytes = outputs * calls * rows * length * mx.bfloat16.size / 1e9
            columns = (f"{rows}×{length}", str(calls), f"{gigabytes:.1f}", side)
            found.add_row(*columns, samples.spread(".1f", 1e6))
            us = samples.figures(1e6)
            script.write("bf16", rows, length, calls, gigabytes, side, *us)
    script.console.print(found)
