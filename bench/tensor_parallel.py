"""Times decoding of a llama of 8B shapes sharded over the GPUs of one host, stock and patched.

Each GPU has a process and its part of every layer's weights, as mlx_lm shards them; sums go over
NCCL. Stock, patched and projections take turns in one run. "patched over it" is the time of patched
over that of projections, round by round: below 1, projections are slower.

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

import mlx.core as mx
import mlx.nn

from harness import llama, models
from harness.script import Script
from harness.tables import table
from mlx_norms._measure import timing
from mlx_norms.commands._sides import CONTEXTS

COLUMNS = ["format", "side", "ms", "ms_lower", "ms_upper", "stock_over_side", "patched_over_side"]
COLUMNS += ["patched_over_lower", "patched_over_upper", "rounds", "gpus", "fused", "projections"]
COLUMNS += ["model", "layers", "prompt"]


def measure(
    group: mx.distributed.Group, model: mlx.nn.Module, prompt: mx.array, args: argparse.Namespace
) -> dict[str, timing.Samples]:
    """Seconds of a decode step of each side, which the processes start together."""
    token, cache = models.prefill(model, prompt)

    def decode(count: int) -> None:
        models.decode(model, token, cache, count)

    def together() -> None:
        mx.eval(mx.distributed.all_sum(mx.zeros(1), group=group))

    runs = {side: timing.Runs(decode, context, together) for side, context in CONTEXTS.items()}
    return timing.measure(runs, rounds=args.rounds, count=args.tokens)


def member(script: Script, args: argparse.Namespace, group: mx.distributed.Group) -> None:
    """One process's part of all measurements; the first process prints them."""
    script.say(f"{group.size()} processes")
    shapes = llama.TINY if script.tiny else llama.Shapes()
    numbers = ("ms", "stock over it", "patched over it")
    found = table("ms a token: median (quartiles)", ("", "side"), numbers)
    for name in args.format or llama.FORMATS:
        mx.random.seed(0)  # the same model in each process
        model, source = llama.build(shapes, llama.FORMATS[name])
        model.shard(group)
        mx.eval(model.parameters())
        mx.clear_cache()
        prompt = mx.random.randint(0, shapes.vocab_size, (args.prompt,))
        report = models.fused_in_a_step(model, prompt)
        seconds = measure(group, model, prompt, args)
        about = (args.rounds, group.size(), report.fused, report.projections, source)
        for side, its in seconds.items():
            over_stock, over_patched = (seconds[s].over(its) for s in ("stock", "patched"))
            ratios = (ratio.spread(".3f") for ratio in (over_stock, over_patched))
            found.add_row(name, side, its.spread(".3f", 1e3), *ratios)
            ms = its.figures(1e3)
            ratios = (over_stock.median, *over_patched.figures())
            script.write(name, side, *ms, *ratios, *about, shapes.num_hidden_layers, args.prompt)
        del model
        mx.clear_cache()
    script.console.print(found)


def free_ports(count: int) -> list[int]:
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for s in sockets:
            s.bind(("127.0.0.1", 0))
        return [s.getsockname()[1] for s in sockets]


def start_members(count: int) -> int:
    """Start this command in ``count`` processes, each with a rank and a GPU; their worst status."""
    ports = free_ports(count)
    with tempfile.NamedTemporaryFile("w", suffix=".json") as hosts:
        json.dump([[f"127.0.0.1:{port}"] for port in ports], hosts)
        hosts.flush()
        shared = {"NCCL_HOST_IP": "127.0.0.1", "NCCL_PORT": str(ports[0])}
        shared |= {"MLX_WORLD_SIZE": str(count), "MLX_HOSTFILE": hosts.name}
        members = []
        for rank in range(count):
            own = {"MLX_RANK": str(rank), "CUDA_VISIBLE_DEVICES": str(rank)}
            command = [sys.executable, *sys.argv]
            members.append(subprocess.Popen(command, env=os.environ | shared | own))
        return max(abs(process.wait()) for process in members)


def main() -> int:
    script = Script(__doc__, COLUMNS, rounds=21)
    add = script.parser.add_argument
    add("--gpus", type=int, default=2, help="processes, each with a GPU")
    add("--prompt", type=int, default=128, help="tokens to prefill")
    add("--tokens", type=int, default=16, help="tokens decoded in a sample")
    add("--format", choices=llama.FORMATS, action="append")
    if "MLX_RANK" not in os.environ:
        return start_members(script.parser.parse_args().gpus)
    args = script.begin(quiet=os.environ["MLX_RANK"] != "0")
    backend = "ring" if script.tiny else "nccl"
    member(script, args, mx.distributed.init(strict=True, backend=backend))
    return 0
