"""Norms on the CPU beside a copy, mx.fast and, with --peers mx.fast,torch, torch's layer norm.

Both sides, and NumPy's copy of the same bytes, take two threads. --only plain (the default) has
rows; --only around what models write around a norm, against MLX's chain; --only images layers of
mlx.nn, which must read what they normalize twice, so the copy does, too. Inputs are not in the
last-level cache, or, with --hot, they are.

The script restarts itself with glibc's malloc set to keep freed memory (conditions.py says why);
--default-malloc measures without that.
"""

from __future__ import annotations

import argparse
import itertools
import os
from collections.abc import Iterator

import mlx.core as mx
import mlx.nn as nn

import mlx_norms
from harness import copy_speed, providers
from harness.configs import DTYPES, EPS, LAYERS, OPS, RMS, Config, modulated, over_axis_1
from harness.suite import Case, Suite

THREADS = 2


def _of_gate(activation: str, before: bool) -> tuple:
    """The gated rms norm with an activation, before or after the norm."""
    activate = {"silu": nn.silu, "sigmoid": mx.sigmoid, "gelu": nn.gelu}[activation]

    def ours(x, gate, weight):
        options = {"activation": activation, "norm_before_gate": before}
        return mlx_norms.rms_norm(x, weight, EPS, gate=gate, **options)

    def chain(x, gate, weight):
        y = RMS(x if before else x * activate(gate), weight, EPS)
        return y * activate(gate) if before else y

    return "x gate weight", ours, chain


def _add_factor_rms(x, residual, factor, weight):
    total = residual + factor * x
    return RMS(total, weight, EPS), total


# What configs.OPS has but one of.
VARIANTS = {
    "ada_rms": (
        "samples weight scale shift",
        lambda x, w, scale, shift: mlx_norms.rms_norm(x, w, EPS, scale=scale, shift=shift),
        lambda x, w, scale, shift: modulated(lambda x, w, eps: RMS(x, w, eps), x, w, scale, shift),
    ),
    "add_factor_rms": (
        "samples residual_samples factor weight",
        lambda x, r, factor, w: mlx_norms.add_rms_norm(x, r, w, EPS, factor=factor),
        _add_factor_rms,
    ),
    "channels_rms": (
        "channels weight",
        lambda x, w: mlx_norms.rms_norm(x, w, EPS, axis=1),
        over_axis_1(RMS),
    ),
    "groups": (
        "x weight",
        lambda x, w: mlx_norms.rms_norm(x, w, EPS, num_groups=8),
        lambda x, w: w * RMS(x.reshape(len(x), 8, -1), None, EPS).reshape(x.shape),
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


def case(config: Config, names: list[str], hot: bool) -> Case:
    read_again = config.moved - config.output_bytes if config.op in LAYERS else 0
    needed = config.moved + read_again

    def sides() -> dict:
        found = providers.sides_of(config, names if config.op == "layer" else names[:1], hot)
        return found | {"copy": copy_speed.side(needed // 2, hot)}

    op = config.label + " vjp" * config.backward
    about = dict(op=op, dtype=config.dtype, rows=config.rows, length=config.length)
    return Case(about, sides, needed)


def cases(args: argparse.Namespace) -> Iterator[Case]:
    os.environ["MLX_NORMS_CPU_THREADS"] = str(THREADS)  # read at the first call
    if "torch" in args.peers:
        import torch

        torch.set_num_threads(THREADS)
    kind = args.only if args.only in KINDS else "plain"
    args.only = "" if args.only in KINDS else args.only
    shapes, ops = KINDS[kind]
    for backward, shape, op, dtype in itertools.product((False, True), shapes, ops, DTYPES):
        if not (backward and op == "add_rms"):
            yield case(Config(op, dtype, *shape, backward), args.peers, args.hot)


def options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--hot", action="store_true", help="inputs from the cache")


LABELS = ("op", "dtype", "rows", "length")
SUITE = Suite(
    __doc__, LABELS, cases, ("evals",), device="cpu", options=options, sample_seconds=0.02
)
