"""How long a call takes by how many of them are evaluated together, whose outputs are kept.

    python bench/outputs_at_once.py [--csv FILE]

add + rms norm by this package and by MLX's two ops, and MLX's sum alone: with tens of GB of outputs
in one mx.eval, buffers of some sizes take twice the time whoever writes them.
"""

from __future__ import annotations

import argparse
import time

import mlx.core as mx
from gpu_model import spread, write
from rich.console import Console
from rich.table import Table

import mlx_norms
from mlx_norms._bench import machine, timing

SHAPES = ((512, 8192), (4096, 768), (4096, 4096))
CALLS = (64, 400, 1600)
COLUMNS = ["dtype", "rows", "length", "calls", "output_gb", "side", "us", "us_lower", "us_upper"]


def sides(rows: int, length: int) -> dict:
    x, residual = (mx.random.normal((rows, length)).astype(mx.bfloat16) for _ in range(2))
    weight = mx.random.normal((length,)).astype(mx.bfloat16)
    mx.eval(x, residual, weight)

    def stock():
        h = x + residual
        return mx.fast.rms_norm(h, weight, 1e-5), h

    return {
        "ours": lambda: mlx_norms.add_rms_norm(x, residual, weight),
        "add, mx.fast": stock,
        "add alone": lambda: (x + residual,),
    }


def measure(rows: int, length: int, calls: int, rounds: int) -> dict[str, timing.Samples]:
    """Microseconds a call."""
    found = sides(rows, length)
    taken: dict[str, list[float]] = {name: [] for name in found}
    for name in timing.turns(found, 1 + rounds):
        mx.synchronize()
        started = time.perf_counter()
        mx.eval([found[name]() for _ in range(calls)])
        mx.synchronize()
        taken[name].append((time.perf_counter() - started) / calls * 1e6)
    mx.clear_cache()
    # The first round takes the memory from the driver.
    return {name: timing.Samples(tuple(values[1:])) for name, values in taken.items()}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=9, help="samples of each side")
    parser.add_argument("--csv", metavar="FILE", help="write the figures with device and versions")
    args = parser.parse_args()
    mx.set_default_device(mx.gpu)
    table = Table(title="µs a call, median (quartiles)", title_justify="left")
    for heading in ("bf16", "calls in an eval", "GB of outputs", "", "µs"):
        table.add_column(heading)
    rows = []
    for shape in SHAPES:
        for calls in CALLS:
            for side, samples in measure(*shape, calls, args.rounds).items():
                outputs = 1 if side == "add alone" else 2
                gigabytes = outputs * calls * shape[0] * shape[1] * mx.bfloat16.size / 1e9
                cells = [f"{shape[0]}×{shape[1]}", str(calls), f"{gigabytes:.1f}", side]
                table.add_row(*cells, spread(samples, 1))
                figures = [samples.median, *samples.quartiles]
                rows.append(["bf16", *shape, calls, gigabytes, side, *figures])
    Console(width=120).print(table)
    if args.csv:
        write(args.csv, COLUMNS, machine.facts() | {"driver": machine.driver_version()}, rows)


if __name__ == "__main__":
    main()
