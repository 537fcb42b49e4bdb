"""Finds the number of vectors per thread with which the kernels are fastest, by row length.

Runs each op with every number of vectors that its kernel is instantiated for and that makes a
difference, and prints the device's GB/s, each tensor of x's shape counted once. "table" is the
choice of csrc/gpu/geometry.cpp. The best of a row, and those within 1 % of it, are marked.

--device cpu tries the script, but says nothing about geometry.
"""

from __future__ import annotations

import functools
import re
from pathlib import Path

from harness import kernels
from harness.candidates import BY_PLAN, candidates, marked
from harness.configs import DTYPES as MLX_DTYPES
from harness.configs import Config
from harness.providers import providers
from harness.script import Script
from harness.tables import table
from mlx_norms import _ext

KERNELS = Path(__file__).parents[1] / "kernels"
OPS = {"norm": ("rms", "layer", "add_rms"), "norm_vjp": ("rms", "layer")}
DTYPES = {2: "bfloat16", 4: "float32"}
LENGTHS = (64, 128, 256, 512, 768, 1024, 1536, 2048, 3072, 4096, 5120, 8192, 12288, 16384, 32768)
VECTOR_BYTES = 16
TENSOR_BYTES = 1 << 28  # several times the L2 cache
CLOSE = 0.99

COLUMNS = ["kernel", "op", "item_size", "length", "rows", "vectors", "gbps", "of_best", "best"]
COLUMNS += ["method"]


def instantiated(backward: bool) -> dict[int, set[int]]:
    """The numbers of vectors per thread that there are instances for, by vector size."""
    name = f"FOR_{'BACKWARD' if backward else 'FORWARD'}_ON_CUDA"
    text = (KERNELS / "common" / "row_instances.h").read_text()
    body = text.split(f"#define {name}(OF)")[1].split("#define")[0]
    found: dict[int, set[int]] = {}
    for width, vectors in re.findall(r"OF\((\d+), (\d+), ", body):
        found.setdefault(int(width), set()).add(int(vectors))
    return found


def of_config(config: Config) -> dict:
    """The candidates that have no more vectors per thread than a row has."""
    width = VECTOR_BYTES // MLX_DTYPES[config.dtype].size
    row_vectors = -(-config.length // width)
    different = [v for v in sorted(instantiated(config.backward)[width]) if v <= row_vectors]
    set_vectors = functools.partial(_ext.set_vectors, config.backward)
    return candidates(providers(config)["ours"], set_vectors, different)


def main() -> None:
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
            of_config,
            lambda config: 2 if script.tiny else kernels.calls_past_cache(config),
            say=script.say,
        )
        vectors = sorted({v for times in measured.values() for v in times} - {BY_PLAN})
        numbers = ("op", "item size", "length", "table", *map(str, vectors))
        found = table(f"{kernel}: GB/s by vectors per thread", (), numbers)
        for config, times in measured.items():
            rates = {v: config.moved / time.together.median / 1e9 for v, time in times.items()}
            best, size = max(rates.values()), MLX_DTYPES[config.dtype].size
            shown = (rates.get(v) for v in (BY_PLAN, *vectors))
            texts = (f and marked(f"{f:.0f}", f >= CLOSE * best) or "" for f in shown)
            found.add_row(config.label, str(size), str(config.length), *texts)
            for v, rate in rates.items():
                values = (v or "table", f"{rate:.1f}", f"{rate / best:.4f}")
                values += ("best" if rate == best else "", times[v].method)
                script.write(kernel, config.label, size, config.length, config.rows, *values)
        script.console.print(found)
