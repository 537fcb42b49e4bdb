"""Times a block of a diffusion transformer as mflux has it against the same block with our norms.

The block is Qwen-Image's, at full width and with random weights, for an image of 4096 tokens and a
text of 256. Forward, and a training step: the loss with the gradients of all weights and inputs.
Both sides run eagerly and under mx.compile, in turn; the time is the host's for an evaluated call,
with quartiles, and the memory the most that was taken in a call. "error" is the distance of the
outputs from those of the float32 weights, relative to their size, and for a step that of the
gradients.

It needs mflux, without what mflux needs: pip install --no-deps mflux. --device cpu tries the script
at a tiny width.
"""

from __future__ import annotations

import sys
from functools import partial

import mlx.core as mx
import mlx.nn as nn
from mlx.utils import tree_flatten, tree_map

from mlx_norms._bench import diffusion, timing
from mlx_norms._bench.configs import DTYPES
from mlx_norms._bench.script import Script
from mlx_norms._bench.tables import table

SIDES = {"mflux": diffusion.stock, "ours": diffusion.ours}
COLUMNS = ["what", "dtype", "side", "compiled", "ms", "ms_lower", "ms_upper", "over", "over_lower"]
COLUMNS += ["over_upper", "peak_mb", "error"]


def forward(side, block: nn.Module):
    """A function of the weights and of the arrays, which leaves the block as it was."""

    def outputs(weights, *arrays):
        kept = block.parameters()
        block.update(weights)
        try:
            return side(block, *arrays)
        finally:
            block.update(kept)

    return outputs


def step(side, block: nn.Module):
    outputs = forward(side, block)

    def loss(*arrays):
        return sum(mx.square(each.astype(mx.float32)).mean() for each in outputs(*arrays))

    return mx.value_and_grad(loss, argnums=(0, 1, 2))


def distance(found, exact) -> float:
    """The norm of the difference over that of the exact arrays."""
    pairs = zip(tree_flatten(found), tree_flatten(exact), strict=True)
    squares = [(0.0, 0.0)]
    for (_, a), (_, b) in pairs:
        b = b.astype(mx.float32)
        squares.append((mx.square(a.astype(mx.float32) - b).sum(), mx.square(b).sum()))
    of_difference, of_exact = (sum(of) for of in zip(*squares, strict=True))
    return mx.sqrt(of_difference / of_exact).item()


def widen(array: mx.array) -> mx.array:
    return array.astype(mx.float32)


def each_alone(call) -> timing.Runs:
    def run(count: int) -> None:
        for _ in range(count):
            mx.eval(call())

    return timing.Runs(run)


def peak(call) -> float:
    """MB that a call takes at most beyond what is alive before it."""
    mx.synchronize()
    before = mx.get_active_memory()
    mx.reset_peak_memory()
    mx.eval(call())
    return (mx.get_peak_memory() - before) / 2**20


def main() -> int:
    script = Script(__doc__, COLUMNS, rounds=9)
    script.parser.add_argument("--dtype", default="bfloat16", help="of " + ", ".join(DTYPES))
    args = script.begin()
    sizes = diffusion.TINY if script.tiny else diffusion.Sizes()
    block, source = diffusion.build(sizes, DTYPES[args.dtype])
    arrays = [block.parameters(), *diffusion.inputs(sizes, DTYPES[args.dtype])]
    script.say(f"{source}, {sizes}")
    headings = ("", "side", "compiled", "ms", "mflux / this, in turn", "MB at most", "error")
    found = table("a block of Qwen-Image's transformer", headings[:1], headings[1:])
    for what, make in {"forward": forward, "training step": step}.items():
        exact = make(diffusion.stock, block)(*tree_map(widen, arrays))
        mx.eval(exact)
        functions = {(name, False): make(side, block) for name, side in SIDES.items()}
        functions |= {(name, True): mx.compile(functions[name, False]) for name in SIDES}
        calls = {name: partial(function, *arrays) for name, function in functions.items()}
        seconds = timing.measure(
            {name: each_alone(call) for name, call in calls.items()}, rounds=args.rounds
        )
        for (name, is_compiled), samples in seconds.items():
            call = calls[name, is_compiled]
            ratio = seconds["mflux", is_compiled].over(samples)
            most, error = peak(call), distance(call(), exact)
            found.add_row(
                *(what, name, "yes" if is_compiled else "no", samples.spread(".3f", 1e3)),
                *(ratio.spread(".3f"), f"{most:.0f}", f"{error:.2e}"),
            )
            ms = [1e3 * value for value in (samples.median, *samples.quartiles)]
            over = (ratio.median, *ratio.quartiles)
            script.write(what, args.dtype, name, is_compiled, *ms, *over, most, error)
        del exact
    script.console.print(found)
    return 0


if __name__ == "__main__":
    sys.exit(main())
