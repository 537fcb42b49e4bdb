"""Times a llama of 8B shapes that GPUs of one host share, stock against patched, at decoding.

Each GPU has a process and its part of every layer's weights, as mlx_lm shards them; sums go over
NCCL. Stock, patched and projections take turns in one run. "patched over it" is the time of patched
over that of projections, round by round: below 1 projections are slower.

--device cpu tries the script: two processes, a tiny model and MLX's ring.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import socket
import subprocess
import sys
import tempfile
import time

import gpu_model
import mlx.core as mx
from rich.console import Console
from rich.table import Table

from mlx_norms._bench import llama, machine, timing
from mlx_norms._bench.results import CsvFile

COLUMNS = ["format", "side", "ms", "ms_lower", "ms_upper", "stock_over_side", "patched_over_side"]
COLUMNS += ["patched_over_lower", "patched_over_upper", "rounds", "gpus", "fused", "projections"]
COLUMNS += ["model", "layers", "prompt"]


def member(args: argparse.Namespace) -> None:
    """One process's part of all measurements; the first prints them."""
    cpu = args.device == "cpu"
    mx.set_default_device(mx.cpu if cpu else mx.gpu)
    group = mx.distributed.init(strict=True, backend="ring" if cpu else "nccl")
    console = Console(width=140, quiet=group.rank() != 0)
    facts = machine.facts() | {"driver": machine.driver_version()}
    console.print(", ".join(f"{key} {value}" for key, value in facts.items()))
    console.print(f"{group.size()} processes")
    shapes = gpu_model.TINY if cpu else llama.Shapes()
    table = Table(title="ms a token: median (quartiles)", title_justify="left")
    for heading in ("", "side", "ms", "stock over it", "patched over it"):
        table.add_column(heading, justify="left" if heading in ("", "side") else "right")
    rows = []
    for name in args.format or gpu_model.FORMATS:
        mx.random.seed(0)  # the same model in each process
        model, source = llama.build(shapes, gpu_model.FORMATS[name])
        model.shard(group)
        mx.eval(model.parameters())
        mx.clear_cache()
        prompt = mx.random.randint(0, shapes.vocab_size, (args.prompt,))
        token, cache = gpu_model.prefill(model, prompt)
        report = gpu_model.fused_in_a_step(model, prompt)
        values: dict[str, list[float]] = {side: [] for side in gpu_model.SIDES}
        for side in timing.turns(gpu_model.SIDES, args.rounds + 1):
            with gpu_model.SIDES[side]():
                mx.eval(mx.distributed.all_sum(mx.zeros(1), group=group))  # begin together
                start = time.perf_counter()
                gpu_model.decode(model, token, cache, args.tokens)
                values[side].append((time.perf_counter() - start) / args.tokens * 1e3)
        # The first round compiles kernels and instantiates graphs.
        samples = {side: timing.Samples(tuple(v[1:])) for side, v in values.items()}
        for side, its in samples.items():
            over_stock, over_patched = (samples[s].over(its) for s in ("stock", "patched"))
            table.add_row(
                *(name, side, gpu_model.spread(its, 3)),
                *(gpu_model.spread(r, 3) for r in (over_stock, over_patched)),
            )
            rows.append(
                [name, side, its.median, *its.quartiles, over_stock.median, over_patched.median]
                + [*over_patched.quartiles, len(its.values), group.size(), report.fused]
                + [report.projections, source, shapes.num_hidden_layers, args.prompt]
            )
        del model, cache
        mx.clear_cache()
    console.print(table)
    if args.csv and group.rank() == 0:
        with open(args.csv, "w", newline="") as file:
            writer = CsvFile(file, COLUMNS, facts)
            for row in rows:
                writer.write(dict(zip(COLUMNS, row, strict=True)))


def free_ports(count: int) -> list[int]:
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for s in sockets:
            s.bind(("127.0.0.1", 0))
        return [s.getsockname()[1] for s in sockets]


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--gpus", type=int, default=2, help="processes, each with a GPU")
    parser.add_argument("--prompt", type=int, default=128, help="tokens to prefill")
    parser.add_argument("--tokens", type=int, default=16, help="tokens decoded in a sample")
    parser.add_argument("--rounds", type=int, default=21, help="samples of each side")
    parser.add_argument("--format", choices=gpu_model.FORMATS, action="append")
    parser.add_argument("--csv", metavar="FILE", help="write the figures with device and versions")
    parser.add_argument("--device", choices=("gpu", "cpu"), default="gpu")
    args = parser.parse_args()
    if "MLX_RANK" in os.environ:
        member(args)
        return 0
    ports = free_ports(args.gpus)
    with tempfile.NamedTemporaryFile("w", suffix=".json") as hosts:
        json.dump([[f"127.0.0.1:{port}"] for port in ports], hosts)
        hosts.flush()
        shared = {"NCCL_HOST_IP": "127.0.0.1", "NCCL_PORT": str(ports[0])}
        shared |= {"MLX_WORLD_SIZE": str(args.gpus), "MLX_HOSTFILE": hosts.name}
        members = [
            subprocess.Popen(
                [sys.executable, *sys.argv],
                env=os.environ
                | shared
                | {"MLX_RANK": str(rank), "CUDA_VISIBLE_DEVICES": str(rank)},
            )
            for rank in range(args.gpus)
        ]
        statuses = [process.wait() for process in members]
    return max(map(abs, statuses))


if __name__ == "__main__":
    sys.exit(main())
