"""Counts what group, instance and batch norms ask of the memory and of a threadgroup.

    python tools counts.group_norms            prints the table of docs/performance/on_metal.md
    python tools counts.group_norms --check    exits with 1 if the page has another
    python tools counts.group_norms --write    writes it into the page

A cell says, in float32 and as metalsim counts them: bytes that loads and stores request for an
element of x, those of arrays of x's shape and all others; barriers per group; SIMD-group
operations per group; launches. A group of an instance norm is a channel of an image, one of a batch
norm a channel.
"""

import functools
import math
import sys

from harness import page_part
from support.variant import ROOT

from . import page
from .simulated import attached, forward_and_backward

PAGE = ROOT / "docs" / "performance" / "on_metal.md"
BEGIN = "<!-- counts of group norms: python tools counts.group_norms --write -->\n"
END = "<!-- end of counts of group norms -->\n"

SHAPES = ((4, 8, 8, 320), (1, 64, 64, 64))
GROUPS = 32
OF_IMAGES = {"x", "y", "cotangent", "gradient"}


def measure() -> str:
    """The table, in Markdown. Runs where the extension is one that runs on the software device."""
    simulator = attached()

    import mlx.core as mx

    from harness import group_ops

    def ops(shape):
        samples, channels = shape[0], shape[-1]
        x = mx.random.normal(shape)
        w, b, m = (mx.random.normal((channels,)) for _ in range(3))
        v = mx.abs(m) + 0.5
        mx.eval(x, w, b, m, v)
        group = functools.partial(group_ops.group, groups=GROUPS)
        adjoining = functools.partial(group, adjoining=True)
        train = functools.partial(group_ops.batch, training=True)
        yield "group_norm", group, (x, w, b), samples * GROUPS
        yield "group_norm, pytorch_compatible", adjoining, (x, w, b), samples * GROUPS
        silu = functools.partial(adjoining, silu=True)
        yield "group_norm, pytorch_compatible, silu", silu, (x, w, b), samples * GROUPS
        yield "instance_norm", group_ops.instance, (x,), samples * channels
        yield "batch_norm, training", train, (x, w, b), channels
        yield "batch_norm, inference", group_ops.batch, (x, w, b, m, v), channels

    cells: dict[str, list[str]] = {}
    for shape in SHAPES:
        for op, function, arrays, groups in ops(shape):
            parts = forward_and_backward(simulator, function, arrays)
            for label, part in zip((op, f"{op}, backward"), parts):
                cells.setdefault(label, []).append(_cell(part, math.prod(shape), groups))
    heading = ["op", *("×".join(map(str, shape)) for shape in SHAPES)]
    return page_part.markdown(heading, ([label, *row] for label, row in cells.items()))


def _cell(launches, elements, groups):
    by_kind = {True: 0, False: 0}
    for launch in launches:
        for array in launch.arrays & launch.result.bytes.keys():
            by_kind[array in OF_IMAGES] += sum(launch.result.bytes[array])
    of_images, others = (by_kind[kind] / elements for kind in (True, False))
    barriers, simd_ops = (
        sum(getattr(launch.result, name) for launch in launches) / groups
        for name in ("barriers", "simd_ops")
    )
    return f"{of_images:.3g} + {others:.3g}, {barriers:.3g}, {simd_ops:.3g}, {len(launches)}"


def main(arguments: list[str]) -> int:
    return page.main(arguments, "counts.group_norms", measure, PAGE, (BEGIN, END))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
