"""Decoding of a llama of 8B shapes sharded over the GPUs of one host, stock and patched.

Each GPU has a process and its part of every layer's weights, as mlx_lm shards them; sums go over
NCCL. On the CPU: two processes, a tiny model and MLX's ring.
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
from collections.abc import Iterator

import mlx.core as mx

from harness import llama, models
from harness.suite import Case, Suite
from mlx_norms._measure import timing
from model import CONTEXTS, SIDES

PROMPT, TOKENS = 128, 16  # prefilled, and decoded in a sample
GPUS = 2


def sides(group: mx.distributed.Group, model, prompt: mx.array) -> dict[str, timing.Runs]:
    """Decode steps of each side, which the processes start together."""
    token, cache = models.prefill(model, prompt)

    def decode(count: int) -> None:
        models.decode(model, token, cache, count)

    def together(count: int) -> int:
        mx.eval(mx.distributed.all_sum(mx.zeros(1), group=group))
        return count

    return {side: timing.Runs(decode, CONTEXTS[side], together) for side in SIDES}


def cases(args: argparse.Namespace) -> Iterator[Case]:
    group = mx.distributed.init(strict=True, backend="ring" if args.tiny else "nccl")
    shapes = llama.TINY if args.tiny else llama.Shapes()
    for name, bits in llama.FORMATS.items():
        mx.random.seed(0)  # the same model in each process
        model, source = llama.build(shapes, bits)
        model.shard(group)
        mx.eval(model.parameters())
        mx.clear_cache()
        prompt = mx.random.randint(0, shapes.vocab_size, (PROMPT,))
        report = models.fused_in_a_step(model, prompt)
        about = dict(gpus=group.size(), fused=report.fused, projections=report.projections)
        about |= dict(model=source, layers=shapes.num_hidden_layers, prompt=PROMPT)
        yield Case(
            dict(format=name),
            lambda model=model, prompt=prompt: sides(group, model, prompt),
            count=TOKENS,
            extras=lambda side, about=about: about,
        )


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
            quiet = {} if rank == 0 else dict(stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            arguments = sys.argv if rank == 0 else [*sys.argv, "--csv", os.devnull]
            command = [sys.executable, *arguments]
            members.append(subprocess.Popen(command, env=os.environ | shared | own, **quiet))
        return max(abs(process.wait()) for process in members)


EXTRAS = ("gpus", "fused", "projections", "model", "layers", "prompt")
SUITE = Suite(__doc__, ("format",), cases, ("wall",), base="stock", extras=EXTRAS)


def main() -> int:
    if "MLX_RANK" in os.environ or {"-h", "--help"} & {*sys.argv}:
        return SUITE.main()
    return start_members(GPUS)
