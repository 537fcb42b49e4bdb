"""Times blocks of models from packages, unchanged, as they are and patched.

The blocks are at full width with random weights: of FLUX.2, Qwen-Image and Ideogram 4 (mflux), Wan,
its decoder and LTX (mlx-video-with-audio), qwen3 (mlx-transformers) and VibeVoice's diffusion head
(mlx-audio). Sides are stock, mlx_norms.patched() and, for code that is not compiled,
patched(projections=True), which passes over what is evaluated, too. Forward, and a training step:
the loss with the gradients of all floating weights and of inputs.

The sides of a block take turns in every round; the time is the host's for an evaluated call, with
quartiles, and ratios are taken round by round. "launches" are the nodes of a call's graph that
launch something, the memory is the most that was taken in a call, and "error" the distance of the
outputs, or of loss and gradients, from those of stock in float32, relative to their size.

It needs the packages, without what they need: pip install --no-deps mflux mlx-transformers
mlx-video-with-audio mlx-audio. A block whose package is not there, or that MLX cannot run, is
said to be unmeasured, and so are those that are left when --seconds have passed. --device cpu
tries the script at a tiny width.
"""

from __future__ import annotations

import contextlib
import functools
import time

import mlx.core as mx
from mlx.utils import tree_flatten, tree_map, tree_unflatten

import mlx_norms
from harness import blocks, package_blocks
from harness.configs import DTYPES
from harness.graph_nodes import nodes
from harness.script import Script
from harness.tables import red_if, table
from mlx_norms import _ext
from mlx_norms._measure import timing
from mlx_norms.commands._sides import CONTEXTS

COLUMNS = ["block", "what", "dtype", "side", "compiled", "ms", "ms_lower", "ms_upper"]
COLUMNS += ["stock_over_side", "ratio_lower", "ratio_upper", "launches", "peak_mb", "error"]
COLUMNS += ["source", "written", "around", "left"]
# Sides, and whether they are compiled. A derivative has its pass without projections, too.
STEPS = [("stock", False), ("patched", False), ("stock", True), ("patched", True)]
WAYS = {"forward": [*STEPS[:2], ("projections", False), *STEPS[2:]], "training step": STEPS}
OF_REPORT = ("written", "around", "left")


def floating(tree) -> object:
    """The arrays of a tree that can have a gradient; the tree itself, if all can."""
    flat = tree_flatten(tree)
    wanted = [(name, a) for name, a in flat if mx.issubdtype(a.dtype, mx.floating)]
    return tree if len(wanted) == len(flat) else tree_unflatten(wanted)


def launches(call, side: str) -> int:
    with CONTEXTS[side]():
        pending = [array for _, array in tree_flatten(call())]
        if side != "stock":
            _ext.fuse_at_eval(pending, True, side == "projections")
        return nodes(*pending).total()


def counts(side: str) -> dict:
    """What the report has of norms and of what is around them, since the patch began."""
    return {
        name: getattr(mlx_norms.report(), name) if side != "stock" else {} for name in OF_REPORT
    }


def functions_of(block: package_blocks.Block, what: str, arrays: list) -> tuple[dict, dict]:
    """Calls without arguments by side, made and run once where the side is; and what they took."""
    found, took = {}, {}
    for side, is_compiled in WAYS[what]:
        with CONTEXTS[side]():
            # Within the context: a patched process passes over what is differentiated or compiled.
            if what == "forward":
                function, taking = functools.partial(block.call, block.module), block.arrays
            else:
                outputs = blocks.forward(block.call, block.module)
                function, taking = blocks.step(outputs, block.inputs), arrays
            if is_compiled:
                function = mx.compile(function)
            found[side, is_compiled] = functools.partial(function, *taking)
            mx.eval(found[side, is_compiled]())
            took[side, is_compiled] = counts(side)
    return found, took


def measure(script: Script, name: str, block: package_blocks.Block, args) -> None:
    dtype = args.dtype
    arrays = [floating(block.module.parameters()), *block.arrays]
    headings = ("ms", "stock / this, in turn", "launches", "MB at most", "error")
    found = table(f"{name}, of {block.source}", ("", "side", "compiled"), headings)
    for what in args.what.split(","):
        calls, took = functions_of(block, what, arrays)
        outputs = blocks.forward(block.call, block.module)
        exact = outputs if what == "forward" else blocks.step(outputs, block.inputs)
        truth = exact(*tree_map(wide, arrays))
        mx.eval(truth)
        clocked = {way: blocks.each_alone(of, CONTEXTS[way[0]]) for way, of in calls.items()}
        seconds = timing.measure(clocked, rounds=args.rounds, sample_seconds=args.sample)
        for (side, is_compiled), samples in seconds.items():
            call = calls[side, is_compiled]
            ratio = seconds["stock", is_compiled].over(samples)
            with CONTEXTS[side]():
                most, error = blocks.peak(call), blocks.distance(call(), truth)
            count = launches(call, side)
            ms = samples.figures(1e3)
            over = ratio.figures()
            script.write(
                *(name, what, dtype, side, is_compiled, *ms, *over, count, most, error),
                *(block.source, *(str(each) for each in took[side, is_compiled].values())),
            )
            found.add_row(
                *(what, side, "yes" if is_compiled else "no", samples.spread(".3f", 1e3)),
                red_if(ratio.interval[1] < 1, ratio.spread(".3f")),
                *(str(count), f"{most:.0f}", f"{error:.2e}"),
            )
        del truth, calls
    script.console.print(found)
    kept = took["patched", True]
    script.say("  ".join(f"{key}: {value}" for key, value in kept.items() if value))


def wide(array: mx.array) -> mx.array:
    return blocks.widen(array) if mx.issubdtype(array.dtype, mx.floating) else array


def main() -> None:
    script = Script(__doc__, COLUMNS, rounds=7)
    add = script.parser.add_argument
    add("--dtype", default="bfloat16", help="of " + ", ".join(DTYPES))
    add("--blocks", default=",".join(package_blocks.BLOCKS), help="of %(default)s")
    add("--what", default=",".join(WAYS), help="of %(default)s")
    add("--seconds", type=float, default=150, help="begin no block after these (%(default)s)")
    add("--sample", type=float, default=0.02, help="seconds of a sample, at least (%(default)s)")
    args = script.begin()
    begin = time.perf_counter()
    for name in args.blocks.split(","):
        if time.perf_counter() - begin > args.seconds:
            script.say(f"{name}: unmeasured, {args.seconds:g} s have passed")
            continue
        start = time.perf_counter()
        try:
            block = package_blocks.BLOCKS[name](script.tiny, DTYPES[args.dtype])
            measure(script, name, block, args)
        except Exception as error:  # of a package or of MLX: the other blocks are still measured
            script.say(f"{name}: unmeasured, {type(error).__name__}: {error}")
            block = None
        script.say(f"{name} took {time.perf_counter() - start:.0f} s")
        del block
        with contextlib.suppress(RuntimeError):
            mx.clear_cache()
