"""Which settings of the extension are fastest on CUDA, beside its own choice ("plan").

"norm" and "norm_vjp": the number of vectors per thread, by the length of rows, with which
csrc/gpu/geometry.cpp chooses. "product": the SIMD-groups of a threadgroup that multiplies quantized
matrices, by their shape, for csrc/linear/tiles_plan.cpp. A ratio is a setting's time over the
plan's: where it is below 1, the plan could be better. On the CPU it says nothing about geometry.
"""

from __future__ import annotations

import argparse
import functools
import itertools
import re
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import quantized
from harness import providers
from harness.configs import DTYPES, Config
from harness.suite import Case, Suite
from mlx_norms import _ext

KERNELS = Path(__file__).parents[1] / "kernels"
OPS = {"norm": ("rms", "layer", "add_rms"), "norm_vjp": ("rms", "layer")}
LENGTHS = (64, 128, 256, 512, 768, 1024, 1536, 2048, 3072, 4096, 5120, 8192, 12288, 16384, 32768)
VECTOR_BYTES = 16
TENSOR_BYTES = 1 << 28  # several times the L2 cache
SIMDS = (4, 8, 16)
SMALL = ((1024, 4096), (6144, 4096), (28672, 4096))  # k or v; q, k and v; gate and up
BY_PLAN = 0  # the value by which the extension chooses itself


class Chosen(providers.Calls):
    """Calls that run with a value of a setting."""

    def __init__(self, calls: providers.Calls, choose: Callable[[int], None], value: int) -> None:
        vars(self).update(vars(calls))
        self._choose, self._value = choose, value

    def finish(self, pending: list, *, alone: bool = False) -> None:
        self._choose(self._value)
        super().finish(pending, alone=alone)
        self._choose(BY_PLAN)


def chosen(calls: providers.Calls, choose: Callable[[int], None], values: Iterable[int]) -> dict:
    return {str(v) if v else "plan": Chosen(calls, choose, v) for v in (BY_PLAN, *values)}


def instantiated(backward: bool, width: int) -> list[int]:
    """The numbers of vectors per thread that there are instances for."""
    name = f"FOR_{'BACKWARD' if backward else 'FORWARD'}_ON_CUDA"
    text = (KERNELS / "common" / "row_instances.h").read_text()
    body = text.split(f"#define {name}(OF)")[1].split("#define")[0]
    return sorted({int(v) for w, v in re.findall(r"OF\((\d+), (\d+), ", body) if int(w) == width})


def norm(kernel: str, config: Config) -> Case:
    width = VECTOR_BYTES // DTYPES[config.dtype].size
    row_vectors = -(-config.length // width)
    values = [v for v in instantiated(config.backward, width) if v <= row_vectors]

    def sides() -> dict:
        choose = functools.partial(_ext.set_vectors, config.backward)
        return chosen(providers.sides_of(config, ())["ours"], choose, values)

    about = dict(kernel=kernel, op=config.label, dtype=config.dtype)
    return Case(about | dict(rows=config.rows, length=config.length), sides, config.moved)


def product(dtype: str, bits: int, weight: tuple[int, int], rows: int) -> Case:
    of = quantized.case(dtype, bits, weight, rows, False)
    about = dict(kernel="product", op=f"{bits} bits, {weight[0]} outputs", dtype=dtype)
    return Case(
        about | dict(rows=rows, length=weight[1]),
        lambda: chosen(of.sides()["ours"], _ext.set_product_simds, SIMDS),
        of.moved,
        count=of.count,
    )


def cases(args: argparse.Namespace) -> Iterator[Case]:
    tensor_bytes = 1 << 16 if args.tiny else TENSOR_BYTES
    for kernel, ops in OPS.items():
        for op, dtype, length in itertools.product(ops, ("bfloat16", "float32"), LENGTHS):
            rows = max(1, tensor_bytes // (length * DTYPES[dtype].size))
            yield norm(kernel, Config(op, dtype, rows, length, kernel == "norm_vjp"))
    shapes = quantized.TINY if args.tiny else (*SMALL, *quantized.SHAPES)
    for bits, weight, rows in itertools.product((4, 8), shapes, (1, 8, 16)):
        yield product("bfloat16", bits, weight, rows)


SUITE = Suite(__doc__, ("kernel", "op", "dtype", "rows", "length"), cases, base="plan")
