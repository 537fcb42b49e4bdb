"""Copies that read and write images of many channels in narrow columns, on CUDA.

A norm that reads a group once keeps all positions of the group in one threadgroup, so that its
reads and writes are as narrow as a position's channels of the group. This copies images so, without
any sum, in columns of 32 to 256 bytes: the share of a copy of the same bytes that lie together is
the limit of such a norm. Each width is tried with 256, 512 and 1024 threads, of which the fastest
counts.
"""

from __future__ import annotations

import argparse
import itertools
import math
from collections.abc import Callable, Iterator

import mlx.core as mx

from harness import providers
from harness.images import ImageConfig
from harness.results import Line
from harness.suite import Case, Run, Suite, by_case
from mlx_norms._measure import machine
from mlx_norms._measure.tables import table
from mlx_norms.commands import CommandError

SHAPES = ((8, 64, 64, 640), (16, 64, 64, 320), (32, 56, 56, 256), (32, 32, 32, 1280))
VECTOR = 16  # bytes that a thread reads at once
WIDTHS = (32, 64, 128, 256)
THREADS = (256, 512, 1024)

# A threadgroup copies a column of an image, each thread four vectors at a time.
SOURCE = """
  int t = threadIdx.x, lane = t % LANES, row = t / LANES, rows = blockDim.x / LANES;
  int columns = VECTORS / LANES;
  size_t first = (size_t)(blockIdx.x / columns) * POSITIONS * VECTORS;
  first += (size_t)(blockIdx.x % columns) * LANES + lane;
  const uint4* from = (const uint4*)x + first;
  uint4* to = (uint4*)y + first;
  for (int p = row; p < POSITIONS; p += 4 * rows) {
    uint4 v[4];
    for (int k = 0; k < 4; ++k)
      if (p + k * rows < POSITIONS) v[k] = from[(size_t)(p + k * rows) * VECTORS];
    for (int k = 0; k < 4; ++k)
      if (p + k * rows < POSITIONS) to[(size_t)(p + k * rows) * VECTORS] = v[k];
  }
"""


def copier(shape: tuple[int, ...], width: int, threads: int) -> Callable:
    """A function that copies an array of 16 bits in columns."""
    samples, *sizes, channels = shape
    vectors, lanes = channels * 2 // VECTOR, width // VECTOR
    kernel = mx.fast.cuda_kernel("strided_copy", ["x"], ["y"], SOURCE)
    template = {"LANES": lanes, "VECTORS": vectors, "POSITIONS": math.prod(sizes)}

    def copied(x: mx.array) -> mx.array:
        return kernel(
            inputs=[x],
            template=list(template.items()),
            grid=(samples * vectors // lanes * threads, 1, 1),
            threadgroup=(threads, 1, 1),
            output_shapes=[x.shape],
            output_dtypes=[x.dtype],
        )[0]

    return copied


def cases(args: argparse.Namespace) -> Iterator[Case]:
    if machine.backend() != "cuda":
        raise CommandError("These copies are CUDA's, and MLX has no such GPU here.")
    for shape, width in itertools.product(SHAPES, WIDTHS):
        if shape[-1] * 2 % width == 0:
            yield case(ImageConfig("instance", "bfloat16", shape), width)


def case(config: ImageConfig, width: int) -> Case:
    def sides() -> dict:
        copiers = {str(threads): copier(config.sizes, width, threads) for threads in THREADS}
        x = config.inputs()[0]
        if not all(mx.array_equal(copied(x), x) for copied in copiers.values()):
            raise RuntimeError(f"The copy of {config.shape} in {width} bytes is wrong.")
        sizes = dict(of_bytes=config.input_bytes, output_bytes=config.output_bytes)
        return providers.in_turn(copiers, [x], caches=providers.CACHES, **sizes)

    return Case(dict(shape=config.shape, width=width), sides, 2 * config.output_bytes)


def fastest(run: Run, lines: list[Line]) -> None:
    found = table("copies in columns", ("shape", "bytes"), ("threads", "µs", "of a copy"))
    for labels, of in by_case(lines):
        best = min(of.values(), key=lambda line: line.time.samples.median)
        us = f"{best.time.samples.median * 1e6:.2f}"
        found.add_row(*map(str, labels.values()), best.side, us, f"{best.share:.1%}")
    run.console.print(found)


SUITE = Suite(__doc__, ("shape", "width"), cases, base=str(THREADS[0]), after=fastest)
