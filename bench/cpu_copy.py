"""Times the norms on the CPU against a copy of the same bytes, mx.fast and torch's layer_norm.

Ops are of three kinds, of which --only chooses some (by default, "plain"):
- plain: rms norm, layer norm and residual add + rms norm;
- around: what models write around a norm, at 4 samples of 1024 rows of 3072, against MLX's eager
  chain of ops;
- images: group, instance and batch norms, at 4 images of 64x64 positions, against mlx.nn's layers;
  what they read twice counts twice.

The copy is NumPy's, half of the bytes in and half out, on two threads; torch, if it is installed,
also uses two. Inputs are not in the last-level cache, or, with --hot, they are.

Prints ratios of times, medians with quartiles: ours over the copy's (1 is the speed of a copy), and
those of the others over ours (above 1, ours is faster).

The script restarts itself with glibc's malloc set to keep freed memory (machine.py says why);
--default-malloc measures without that.
"""

from __future__ import annotations

import itertools
import os
import sys
from concurrent.futures import ThreadPoolExecutor

import mlx.core as mx
import mlx.nn as nn
import numpy as np

import mlx_norms
from harness import clocks, providers
from harness.configs import DTYPES, EPS, LAYERS, OPS, Config, Op, over_axis_1
from harness.script import Script
from harness.tables import table
from mlx_norms._measure import timing

THREADS = 2
COLUMNS = ["op", "dtype", "rows", "length", "ratio", "median", "lower_quartile", "upper_quartile"]


def _of_gate(activation: str, before: bool) -> Op:
    """The gated rms norm with an activation, before or after the norm."""
    activate = {"silu": nn.silu, "sigmoid": mx.sigmoid, "gelu": nn.gelu}[activation]

    def ours(x, gate, weight):
        options = {"activation": activation, "norm_before_gate": before}
        return mlx_norms.rms_norm(x, weight, EPS, gate=gate, **options)

    def chain(x, gate, weight):
        if before:
            return mx.fast.rms_norm(x, weight, EPS) * activate(gate)
        return mx.fast.rms_norm(x * activate(gate), weight, EPS)

    return Op(("x", "gate", "weight"), ours, chain, (0, 0))


def _add_factor_rms(x, residual, factor, weight):
    total = residual + factor * x
    return mx.fast.rms_norm(total, weight, EPS), total


# What configs.OPS has but one of.
VARIANTS = {
    "ada_rms": Op(
        ("samples", "weight", "scale", "shift"),
        lambda x, w, scale, shift: mlx_norms.rms_norm(x, w, EPS, scale=scale, shift=shift),
        lambda x, w, scale, shift: mx.fast.rms_norm(x, w, EPS) * (1 + scale) + shift,
        (0, 0),
    ),
    "add_factor_rms": Op(
        ("samples", "residual_samples", "factor", "weight"),
        lambda x, r, factor, w: mlx_norms.add_rms_norm(x, r, w, EPS, factor=factor),
        _add_factor_rms,
        (0, 0),
    ),
    "channels_rms": Op(
        ("channels", "weight"),
        lambda x, w: mlx_norms.rms_norm(x, w, EPS, axis=1),
        over_axis_1(mx.fast.rms_norm),
        (0, 0),
    ),
    "groups": Op(
        ("x", "weight"),
        lambda x, w: mlx_norms.rms_norm(x, w, EPS, num_groups=8),
        lambda x, w: w * mx.fast.rms_norm(x.reshape(len(x), 8, -1), None, EPS).reshape(x.shape),
        (0, 0),
    ),
}
VARIANTS |= {
    f"gate_{activation}_{'after' if before else 'first'}": _of_gate(activation, before)
    for activation in ("silu", "sigmoid", "gelu")
    for before in (True, False)
}
OPS |= VARIANTS
# Shapes and ops, by kind. Rows are those of four samples, or positions of four images.
KINDS = {
    "plain": ([(512, 4096), (8192, 768)], ("rms", "layer", "add_rms")),
    "around": (
        [(4096, 3072)],
        ("ada", "add_ada", "norm_add_norm", "l2", "channels", *VARIANTS),
    ),
    "images": ([(4 * 64 * 64, 320)], LAYERS),
}


class Copies:
    """A copy on two threads, which takes its inputs from sets in turn, as in providers.py."""

    def __init__(self, moved: int, sets: int) -> None:
        self.output_bytes = moved // 2
        results = timing.batch_size(self.output_bytes)
        self._inputs = [np.ones(self.output_bytes, np.uint8) for _ in range(sets)]
        self._outputs = [np.zeros(self.output_bytes, np.uint8) for _ in range(results)]
        self._threads = ThreadPoolExecutor(THREADS)
        self._turn = 0

    def prepare(self, count: int) -> list[tuple]:
        turns = range(self._turn, self._turn + count)
        self._turn += count
        ins, outs = self._inputs, self._outputs
        return [(outs[turn % len(outs)], ins[turn % len(ins)]) for turn in turns]

    def finish(self, pending: list[tuple]) -> None:
        cut = self.output_bytes // THREADS

        def part(thread: int) -> None:
            for to, source in pending:
                np.copyto(to[thread * cut :][:cut], source[thread * cut :][:cut])

        list(self._threads.map(part, range(THREADS)))


def needed_bytes(config: Config) -> int:
    read_again = config.moved - config.output_bytes if config.op in LAYERS else 0
    return config.moved + read_again


def measure(config: Config, names: list[str], rounds: int, hot: bool) -> dict[str, timing.Samples]:
    """The ratios at a config, by name."""
    calls = providers.providers(config, names if config.op == "layer" else names[:1], hot=hot)
    calls["copy"] = Copies(needed_bytes(config), providers.sets_needed(config.input_bytes, hot))
    clocked = {name: clocks.HostClock(call) for name, call in calls.items()}
    seconds = timing.measure(clocked, rounds=rounds, sample_seconds=clocks.HOST_SECONDS)
    ours = seconds.pop("ours")
    ratios = {"ours/copy": ours.over(seconds.pop("copy"))}
    return ratios | {f"{name}/ours": samples.over(ours) for name, samples in seconds.items()}


def main() -> None:
    os.environ["MLX_NORMS_CPU_THREADS"] = str(THREADS)  # read at the first call
    script = Script(__doc__, COLUMNS, device="cpu", rounds=9)
    script.parser.add_argument("--hot", action="store_true", help="inputs from the cache")
    script.parser.add_argument(
        "--only", default="plain", metavar="TEXT", help="of KIND OP DTYPE forward|vjp (%(default)r)"
    )
    args = script.begin()
    script.add_peers(("mx.fast", "torch"))
    if "torch" in script.peers:
        sys.modules["torch"].set_num_threads(THREADS)
    configs = [
        Config(op, dtype, *shape, backward)
        for kind, (shapes, ops) in KINDS.items()
        for backward, shape, op, dtype in itertools.product((False, True), shapes, ops, DTYPES)
        if args.only in f"{kind} {op} {dtype} {'vjp' if backward else 'forward'}"
        and not (backward and op == "add_rms")
    ]
    found = table("", ("op", "dtype", "shape", "ours/copy (quartiles)", "others/ours"))
    for config in script.tracked(configs):
        ratios = measure(config, script.peers, args.rounds, args.hot)
        for name, ratio in ratios.items():
            figures = ratio.figures()
            script.write(config.name, config.dtype, config.rows, config.length, name, *figures)
        copy = ratios.pop("ours/copy").spread(".2f")
        others = (f"{name.split('/')[0]} {each.median:.2f}" for name, each in ratios.items())
        found.add_row(config.name, config.dtype, config.shape, copy, ", ".join(others))
        providers.make_room()
    script.console.print(found)
