"""Times copies that read and write images of many channels in narrow columns, on CUDA.

A norm that reads a group once keeps all positions of the group in one threadgroup, so that its
reads and writes are as narrow as a position's channels of the group. This copies images so, without
any sum, in columns of 32 to 256 bytes: what is printed is the share of a copy of the same bytes
that lie together, the limit of such a norm. Each width is tried with 256, 512 and 1024 threads, of
which the fastest counts. Times are CUPTI's, as in group_norm.py. --device cpu only lists the
shapes.
"""

from __future__ import annotations

import math

import mlx.core as mx

from harness import device_copy, kernels
from harness.beside_mlx import CACHES
from harness.images import ImageConfig
from harness.providers import Calls, copies, sets_needed
from harness.script import Script
from harness.tables import table

SHAPES = ((8, 64, 64, 640), (16, 64, 64, 320), (32, 56, 56, 256), (32, 32, 32, 1280))
VECTOR = 16  # bytes that a thread reads at once
WIDTHS = (32, 64, 128, 256)
THREADS = (256, 512, 1024)
COLUMNS = ["shape", "width", "threads", "us", "of_copy", "copy_gbps"]

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


def copier(shape: tuple[int, ...], width: int, threads: int):
    """A function that copies an array of 16 bits in columns."""
    samples, *sizes, channels = shape
    vectors = channels * 2 // VECTOR
    kernel = mx.fast.cuda_kernel("strided_copy", ["x"], ["y"], SOURCE)
    lanes = width // VECTOR
    sizes = {"LANES": lanes, "VECTORS": vectors, "POSITIONS": math.prod(sizes)}

    def copied(x: mx.array) -> mx.array:
        return kernel(
            inputs=[x],
            template=list(sizes.items()),
            grid=(samples * vectors // lanes * threads, 1, 1),
            threadgroup=(threads, 1, 1),
            output_shapes=[x.shape],
            output_dtypes=[x.dtype],
        )[0]

    return copied


def main() -> None:
    script = Script(__doc__, COLUMNS, rounds=5)
    args = script.begin()
    found = table("copies in columns", ("shape", "bytes"), ("threads", "µs", "of a copy"))
    for shape in SHAPES:
        config = ImageConfig("instance", "bfloat16", shape)
        if script.tiny:
            script.say(config.shape)
            continue
        rate = device_copy.rate(config.output_bytes, script.say)
        sets = copies(config.inputs()[:1], sets_needed(config.input_bytes, caches=CACHES))
        ((x,), *_) = sets
        for width in WIDTHS:
            if shape[-1] * 2 % width:
                continue
            copiers = {threads: copier(shape, width, threads) for threads in THREADS}
            if not all(mx.array_equal(copied(x), x) for copied in copiers.values()):
                raise RuntimeError(f"The copy of {config.shape} in {width} bytes is wrong.")
            calls = {
                threads: Calls(copied, sets, None, config.output_bytes)
                for threads, copied in copiers.items()
            }
            measured = kernels.measure(
                [config], lambda _, calls=calls: calls, kernels.calls_past_cache, rounds=args.rounds
            )
            times = {threads: of.together.median for threads, of in measured[config].items()}
            threads = min(times, key=times.get)
            share = 2 * config.output_bytes / times[threads] / rate
            us = times[threads] * 1e6
            found.add_row(config.shape, str(width), str(threads), f"{us:.2f}", f"{share:.1%}")
            script.write(config.shape, width, threads, us, share, rate / 1e9)
    if not script.tiny:
        script.console.print(found)
