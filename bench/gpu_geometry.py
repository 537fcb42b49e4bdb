"""Finds the number of vectors per thread with which the kernels are fastest, by row length.

Runs each op with every number of vectors that its kernel is instantiated for and that makes a
difference, and prints the device's GB/s, each tensor of x's shape counted once. "table" is the
choice of csrc/gpu/geometry.cpp. The best of a row, and those within 1 % of it, are marked.

--device cpu tries the script, but says nothing about geometry.
"""

from __future__ import annotations

import re
import sys
from dataclasses import dataclass
from pathlib import Path

from harness import kernels
from harness.configs import DTYPES as MLX_DTYPES
from harness.configs import Config
from harness.providers import Calls, providers
from harness.script import Script
from harness.tables import table
from mlx_norms import _ext

KERNELS = Path(__file__).parents[1] / "kernels"
OPS = {"norm": ("rms", "layer", "add_rms"), "norm_vjp": ("rms", "layer")}
DTYPES = {2: "bfloat16", 4: "float32"}
LENGTHS = (64, 128, 256, 512, 768, 1024, 1536, 2048, 3072, 4096, 5120, 8192, 12288, 16384, 32768)
VECTOR_BYTES = 16
TENSOR_BYTES = 1 << 28  # several times the L2 cache
BY_TABLE = 0
CLOSE = 0.99

COLUMNS = ["kernel", "op", "item_size", "length", "rows", "vectors", "gbps", "of_best", "best"]
COLUMNS += ["method"]


@dataclass(frozen=True)
class Candidate:
    """The calls of a config with a given number of vectors per thread."""

    calls: Calls
    backward: bool
    vectors: int

    def prepare(self, count: int) -> list:
        return self.calls.prepare(count)

    def finish(self, pending: list, *, alone: bool = False) -> None:
        _ext.set_vectors(self.backward, self.vectors)
        self.calls.finish(pending, alone=alone)
        _ext.set_vectors(self.backward, BY_TABLE)


def instantiated(kernel: str) -> dict[int, set[int]]:
    """The numbers of vectors per thread that a kernel is instantiated for, by vector size."""
    text = next(KERNELS.rglob(f"{kernel}.metal")).read_text()
    found: dict[int, set[int]] = {}
    pattern = rf"^INSTANTIATE_{kernel.upper()}\((\d+), (\d+)[,)]"
    for width, vectors in re.findall(pattern, text, re.M):
        found.setdefault(int(width), set()).add(int(vectors))
    return found


def candidates(kernel: str, config: Config) -> dict[int, Candidate]:
    """The candidates that have no more vectors per thread than a row has."""
    width = VECTOR_BYTES // MLX_DTYPES[config.dtype].size
    row_vectors = -(-config.length // width)
    different = [v for v in sorted(instantiated(kernel)[width]) if v <= row_vectors]
    ours = providers(config)["ours"]
    return {v: Candidate(ours, config.backward, v) for v in (BY_TABLE, *different)}


def marked(rate: float | None, best: float) -> str:
    if rate is None:
        return ""
    return f"[bold green]{rate:.0f}*[/bold green]" if rate >= CLOSE * best else f"{rate:.0f}"


def main() -> int:
    script = Script(__doc__, COLUMNS)
    add = script.parser.add_argument
    add("--kernel", choices=OPS, action="append", help="one of the kernels")
    add("--length", type=int, action="append", help="one of the lengths of rows")
    args = script.begin()
    tensor_bytes = 1 << 16 if script.tiny else TENSOR_BYTES
    for kernel in args.kernel or OPS:
        configs = [
            Config(op, dtype, max(1, tensor_bytes // (length * size)), length, kernel == "norm_vjp")
            for op in OPS[kernel]
            for size, dtype in DTYPES.items()
            for length in args.length or LENGTHS
        ]
        measured = kernels.measure(
            configs,
            lambda config: candidates(kernel, config),  # noqa: B023
            lambda config: 2 if script.tiny else kernels.calls_past_cache(config),
            say=script.say,
        )
        vectors = sorted({v for times in measured.values() for v in times} - {BY_TABLE})
        numbers = ("op", "item size", "length", "table", *map(str, vectors))
        found = table(f"{kernel}: GB/s by vectors per thread", (), numbers)
        for config, times in measured.items():
            rates = {v: config.moved / time.together.median / 1e9 for v, time in times.items()}
            best, size = max(rates.values()), MLX_DTYPES[config.dtype].size
            texts = (marked(rates.get(v), best) for v in (BY_TABLE, *vectors))
            found.add_row(config.label, str(size), str(config.length), *texts)
            for v, rate in rates.items():
                values = (v or "table", f"{rate:.1f}", f"{rate / best:.4f}")
                values += ("best" if rate == best else "", times[v].method)
                script.write(kernel, config.label, size, config.length, config.rows, *values)
        script.console.print(found)
    return 0


if __name__ == "__main__":
    sys.exit(main())
