"""What the first request of a process waits for, with and without ``warm_up``.

    python bench first_call

A qwen3 of mlx_lm with random weights answers one request: a prompt, then steps of one token. Each
row is a process of its own, which has made no call before; those with an empty cache begin with no
compiled CUDA kernel on disk, of ours or of MLX's, and those after them find what they left. "stock"
is MLX alone, "patched" is after ``patch()``, "warmed up" after ``warm_up`` of a prompt and of a
step, too. On Metal the system keeps what it compiled, so that both caches are alike; on a CPU there
is nothing to compile. --device cpu tries the script with a tiny model.
"""

from __future__ import annotations

import argparse
import concurrent.futures
import itertools
import multiprocessing
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import mlx.core as mx

import mlx_norms
from harness import conditions, llama, models
from mlx_norms import _ext
from mlx_norms._measure.tables import table
from mlx_norms.commands import _output

MODEL = "qwen3-0.6B"
PROMPT, LATER = 32, 20  # tokens; steps after the first
SIDES = ("stock", "patched", "warmed up")
CACHES = ("MLX_NORMS_CACHE", "MLX_PTX_CACHE_DIR")  # variables: ours, and MLX's


@dataclass(frozen=True)
class Times:
    """Of one process, in seconds.

    Attributes:
        warm_up: Of ``warm_up``; 0 on the other sides.
        kernels: The kernels of ours that were compiled, or loaded from disk.
        prompt: From the request to its first token.
        later: The median of the steps after the first.
    """

    warm_up: float
    kernels: int
    prompt: float
    step: float
    later: float


def measured(side: str, device: str) -> Times:
    """What this process takes, which must have made no call before."""
    mx.set_default_device(getattr(mx, device))
    model, _ = llama.build(llama.shapes_of(MODEL, tiny=device == "cpu"), None)
    prompt, token = mx.arange(PROMPT), mx.zeros((1,), mx.int32)
    mx.eval(prompt, token)
    warm_up = 0.0
    if side != "stock":
        mlx_norms.patch()
    if side == "warmed up":
        cache = models.new_cache(model)
        for tokens in (prompt, token):
            ready = mlx_norms.warm_up(models.step, model, tokens, cache, progress=False)
            warm_up += ready.seconds
    cache, seconds = models.new_cache(model), []
    for tokens in (prompt, *[token] * (1 + LATER)):
        start = time.perf_counter()
        mx.eval(models.step(model, tokens, cache))
        seconds.append(time.perf_counter() - start)
    first, step, *later = seconds
    return Times(warm_up, len(_ext.first_uses()), first, step, statistics.median(later))


def in_new_processes(device: str) -> Iterator[tuple[str, str, Times]]:
    """The cache, the side and the times of each process, one after the other."""
    spawn = multiprocessing.get_context("spawn")  # a fork would share the driver's state
    with tempfile.TemporaryDirectory() as folder:
        for side, cache in itertools.product(SIDES, ("empty", "filled")):
            os.environ |= {name: str(Path(folder, side, name)) for name in CACHES}
            with concurrent.futures.ProcessPoolExecutor(1, mp_context=spawn) as process:
                yield cache, side, process.submit(measured, side, device).result()


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python bench first_call",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--device", choices=("gpu", "cpu"), default="gpu")
    args = parser.parse_args(sys.argv[2:])
    mx.set_default_device(getattr(mx, args.device))
    facts = conditions.facts()
    print(", ".join(f"{key} {facts[key]}" for key in ("device", "mlx", "mlx_norms")))
    numbers = ("warm_up, s", "kernels", "prompt, ms", "first step, ms", "a later step, ms")
    shown = table(f"one request of {MODEL}", ("", "cache"), numbers)
    for cache, side, its in in_new_processes(args.device):
        said = [f"{1e3 * seconds:.1f}" for seconds in (its.prompt, its.step, its.later)]
        warm_up = f"{its.warm_up:.2f}" if its.warm_up else ""
        shown.add_row(side, cache, warm_up, str(its.kernels), *said)
    _output.console().print(shown)
    return 0
