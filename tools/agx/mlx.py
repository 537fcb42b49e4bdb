"""Tells registers and spills of kernels beside those that MLX launches for the same calls.

    python tools agx.mlx    prints a table, in Markdown

MLX's come from mlx.metallib of its macOS wheel, where they are bitcode, for a Mac to finish.
Exits with 75, and NOT RUN, where the wheel or the packages cannot be had.
"""

from __future__ import annotations

import argparse
import itertools
import os
import sys
import tempfile
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import join
from harness import page_part
from macos import mlx_wheel
from mlx_versions import NEWEST

from . import air, stored
from .calls import DEPTHS, DTYPES, OUTPUTS
from .frontend import Refused
from .launched import launched
from .measure import Measured, Specialization, back, measure
from .metallib import Metallib
from .packages import Tree, Unavailable, cache, tree

CHIP = "g13g"
LENGTHS = (128, 1024, 4096, 16384)
# Of MLX's norms, by its sources: the elements that a thread reads, and the longest row that a
# threadgroup holds.
READS = {"rms": 4, "layer_norm": 8}
HELD = 4096

HEADS = ("call", "", "kernel", "threads", "half registers", "threads per core", "instructions")
HEADS += ("float", "spills:fills", "threadgroup bytes", "code bytes")


@dataclass(frozen=True)
class Theirs:
    """What MLX launches for a call: its kernel, with a threadgroup and function constants."""

    call: str
    kernel: str
    group: tuple[int, int, int]
    constants: tuple[tuple[str, int], ...] = ()


def theirs() -> Iterator[Theirs]:
    for (name, reads), dtype, length in itertools.product(READS.items(), DTYPES, LENGTHS):
        op = f"{name.removesuffix('_norm')}_norm {dtype} {length}"
        looped = "_looped" if length > HELD else ""
        threads = 1024 if looped else -(-length // (32 * reads)) * 32
        kernel = f"{name}{looped}{dtype}"
        yield Theirs(op, kernel, (threads, 1, 1), (("has_w", 1),))
        yield Theirs(f"{op} backward", f"vjp_{kernel}", (threads, 1, 1), (("has_w", 1),))
    for dtype in DTYPES:
        # As MLX spreads a product with a matrix of so many outputs.
        assert (DEPTHS[0], OUTPUTS) == (4096, 1024)
        call = f"matmul {dtype} 1x{DEPTHS[0]}"
        tile = "tm4_tn4_nc0_axpby0"
        yield Theirs(f"{call} lines", f"gemv_{dtype}_bm4_bn1_sm1_sn32_{tile}", (32, 1, 4))
        yield Theirs(f"{call} columns", f"gemv_t_{dtype}_bm1_bn4_sm8_sn4_{tile}", (32, 4, 1))
        # The product alone, after a launch for the norm. Its outputs are a multiple of eight, so
        # that no rows are partial.
        type = "float" if dtype == "float32" else f"{dtype}_t"
        for bits in (8, 4):
            kernel = f"affine_qmv_fast_{type}_gs_64_b_{bits}_batch_0_pr_0_hgs_0_r_4"
            yield Theirs(f"rms_norm_linear {dtype} 1x{DEPTHS[0]} {bits} bits", kernel, (32, 2, 1))


def metallib() -> Metallib:
    """MLX's compiled kernels, downloaded unless the cache has them.

    Raises:
        Unavailable: they cannot be downloaded.
    """
    version, macos = NEWEST, mlx_wheel.MACOS[-1]
    path = cache() / f"mlx-{version}-macos-{macos}.metallib"
    if not path.exists():
        with tempfile.TemporaryDirectory(dir=cache()) as folder:
            try:
                wheel = mlx_wheel.download(f"mlx-metal=={version}", macos, Path(folder))
            except RuntimeError as error:
                raise Unavailable(str(error)) from None
            with zipfile.ZipFile(wheel) as archive:
                os.rename(archive.extract("mlx/lib/mlx.metallib", folder), path)
    return Metallib(path)


def measure_theirs(compilers: Tree) -> dict[str, Measured]:
    """MLX's kernels by call."""
    library = metallib()
    found, compiled = {}, {}
    with tempfile.TemporaryDirectory() as folder:
        for i, one in enumerate(theirs()):
            of = Specialization("mlx", one.kernel, one.constants, one.group)
            measured = found[one.call] = Measured(of, one.group)
            own = Path(folder, str(i))
            own.mkdir()
            try:
                code = library.bitcode(one.kernel)
                path = air.to_spirv(compilers, code, own, dict(one.constants), one.group)
                compiled[path] = measured
            except Refused as error:
                measured.by_chip[CHIP] = str(error)
        back(compilers, compiled, [CHIP])
    return found


def table(compilers: Tree) -> str:
    """Both sides of each call, in Markdown."""
    mlx = measure_theirs(compilers)
    texts = join.texts()
    ours = {of: calls for of, calls in launched(texts).items() if mlx.keys() & set(calls)}
    by_call: dict[str, list[Measured]] = {}
    for measured in measure(compilers, texts, ours, [CHIP]):
        for call in ours[measured.of]:
            by_call.setdefault(call, []).append(measured)
    lines = []
    for call, one in mlx.items():
        sides = [*(("mlx_norms", measured) for measured in by_call[call]), ("MLX", one)]
        for i, (side, measured) in enumerate(sides):
            lines.append(["" if i else call, side, *_cells(measured)])
    return page_part.markdown(HEADS, lines)


def _cells(measured: Measured) -> list[str]:
    threads = stored.threads(measured.of.group)
    result = measured.by_chip[CHIP]
    if isinstance(result, str):
        return [measured.of.kernel, threads, f"refused: {result}", *[""] * (len(HEADS) - 5)]
    numbers = (result.half_registers, result.threads_per_core, result.instructions)
    numbers += (result.classes["float"], f"{result.spills}:{result.fills}")
    numbers += (result.threadgroup_bytes, result.code_bytes)
    return [measured.of.kernel, threads, *map(str, numbers)]


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.parse_args()
    try:
        print(table(tree()), end="")
    except Unavailable as error:
        print(f"NOT RUN: {error}")
        return 75
    return 0


if __name__ == "__main__":
    sys.exit(main())
