"""Blocks of models from packages, unchanged, as they are and patched.

The blocks are at full width with random weights: of FLUX.2, Qwen-Image and Ideogram 4 (mflux), Wan,
its decoder and LTX (mlx-video-with-audio), qwen3 (mlx-transformers) and VibeVoice's diffusion head
(mlx-audio). Sides are stock, mlx_norms.patched() and, for code that is not compiled,
patched(projections=True), which passes over what is evaluated, too. Forward, and a training step:
the loss with the gradients of all floating weights and of inputs. "launches" are the nodes of a
call's graph that launch something; else as image_blocks.

It needs the packages, without what they need: pip install --no-deps mflux mlx-transformers
mlx-video-with-audio mlx-audio. A block whose package is not there, or that MLX cannot run, is said
to be unmeasured.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator

import mlx.core as mx
from mlx.utils import tree_flatten, tree_unflatten

import mlx_norms
from harness import blocks, package_blocks
from harness.blocks import Side
from harness.configs import DTYPES
from harness.graph_nodes import nodes
from harness.suite import Case, Suite
from mlx_norms import _ext
from mlx_norms.commands._sides import CONTEXTS

OF_REPORT = ("written", "around", "left")
SIDES = ("stock", "patched", "projections")
DTYPE = "bfloat16"


def floating(tree) -> object:
    """The arrays of a tree that can have a gradient; the tree itself, if all can."""
    flat = tree_flatten(tree)
    wanted = [(name, a) for name, a in flat if mx.issubdtype(a.dtype, mx.floating)]
    return tree if len(wanted) == len(flat) else tree_unflatten(wanted)


def launches(call: Callable, side: str) -> int:
    pending = [array for _, array in tree_flatten(call())]
    if side != "stock":
        _ext.fuse_at_eval(pending, True, side == "projections")
    return nodes(*pending).total()


def cases(args: argparse.Namespace) -> Iterator[Case]:
    for name, build in package_blocks.BLOCKS.items():
        try:
            block = build(args.tiny, DTYPES[DTYPE])
        except Exception as error:  # of a package or of MLX: the other blocks are still measured
            print(f"{name}: unmeasured, {type(error).__name__}: {error}")
            continue
        outputs = blocks.forward(block.call, block.module)

        def more(side: str, call: Callable, block=block) -> dict[str, object]:
            report = mlx_norms.report() if side != "stock" else None
            found = {of: str(getattr(report, of, {})) for of in OF_REPORT}
            return found | dict(launches=launches(call, side), source=block.source)

        yield from blocks.cases(
            name,
            DTYPE,
            {side: Side(outputs, CONTEXTS[side]) for side in SIDES},
            outputs,
            [floating(block.module.parameters()), *block.arrays],
            block.inputs,
            compiled_sides=SIDES[:2],
            more=more,
        )


EXTRAS = ("launches", "peak_mb", "error", "source", *OF_REPORT)
SUITE = Suite(__doc__, blocks.LABELS, cases, ("one",), base="stock", extras=EXTRAS)
