"""Times what only a Mac can decide, beside MLX, in about ten minutes and one file to send back.

    python bench mac --csv mac.csv

On Apple silicon geometries and limits are chosen by counts of instructions, not by times. Here are
calls that show whether they are right: norms of few and of many rows, in each dtype; sums, scales
and shifts, group norms, ropes; products in one launch, with more rows, too, than are taken
otherwise. "many" is a call's time among many in an mx.eval, "one" in an mx.eval of its own, from
building the graph to the result, by the host's clock; sides take turns in each round. "first" is
the time of the first call of a new process, in which kernels are loaded or compiled, and "checked"
with the check before their first use. "fell_back" is what MLX computed of ours after all, which is
then MLX beside MLX; a row that raises is said and left out. With MLX_NORMS_NATIVE_BFLOAT=1 in the
environment, calls of bfloat16 alone, by Metal's own conversions, and first calls with kernels from
text. --device cpu tries the script with tiny shapes. tools/first_mac times the same rows in five
rounds.
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import functools
import math
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import mlx.core as mx
import mlx.nn as nn
from mlx.utils import tree_flatten

import mlx_norms
from harness import clocks, providers
from harness.graph_nodes import nodes
from harness.suite import Case, Suite
from mlx_norms import _ext
from mlx_norms.commands import _output
from qk_norm_rope import Shape

EPS = 1e-5
BF16 = mx.bfloat16
DTYPES = (BF16, mx.float16, mx.float32)
PRODUCT_ROWS = (1, 4, 8, 16)
FEW_ROUNDS = 5
FEW_SECONDS = 0.003  # of a sample, at least
QUANTIZED = dict(group_size=64, bits=4)
FIRST = {
    "rms_norm": ("mlx_norms.rms_norm(x, w)", "mx.fast.rms_norm(x, w, 1e-5)"),
    "gradient of rms_norm": (
        "mx.grad(lambda x: mlx_norms.rms_norm(x, w).sum())(x)",
        "mx.grad(lambda x: mx.fast.rms_norm(x, w, 1e-5).sum())(x)",
    ),
    "rms_norm_linear": ("mlx_norms.rms_norm_linear(x, w, m)", "mx.fast.rms_norm(x, w, 1e-5) @ m.T"),
}
PROCESS = """
import sys, time
import mlx.core as mx, mlx_norms
mx.set_default_device(getattr(mx, sys.argv[1]))
x, w, m = mx.ones((1, 1024)), mx.ones(1024), mx.ones((64, 1024))
mx.eval(x * w, m)
begin = time.perf_counter()
mx.eval({call})
print(time.perf_counter() - begin)
"""


@dataclass(frozen=True)
class Row:
    """Functions of the same arrays, of ours and of MLX's ops."""

    name: str
    arrays: list[mx.array]
    ours: Callable[..., object]
    stock: Callable[..., object]


def normal(*shape: int, dtype: mx.Dtype = BF16) -> mx.array:
    return mx.random.normal(shape).astype(dtype)


def norms(shapes: list[tuple[int, int]]) -> Iterator[Row]:
    fast = mx.fast
    for (rows, length), dtype in ((s, d) for s in shapes for d in DTYPES):
        w, b = normal(length, dtype=dtype), normal(length, dtype=dtype)
        x, r = normal(rows, length, dtype=dtype), normal(rows, length, dtype=dtype)
        where = f"{rows}×{length} {str(dtype).removeprefix('mlx.core.')}"
        yield Row(
            f"rms_norm {where}",
            [x],
            lambda x, w=w: mlx_norms.rms_norm(x, w, EPS),
            lambda x, w=w: fast.rms_norm(x, w, EPS),
        )
        yield Row(
            f"layer_norm {where}",
            [x],
            lambda x, w=w, b=b: mlx_norms.layer_norm(x, w, b, EPS),
            lambda x, w=w, b=b: fast.layer_norm(x, w, b, EPS),
        )
        if dtype == BF16:
            yield Row(
                f"add_rms_norm {where}",
                [x, r],
                lambda x, r, w=w: mlx_norms.add_rms_norm(x, r, w, EPS),
                lambda x, r, w=w: [fast.rms_norm(x + r, w, EPS), x + r],
            )


def around_norms(tokens: int, length: int, images: list[tuple[int, ...]]) -> Iterator[Row]:
    x, scale, shift = normal(1, tokens, length), normal(1, 1, length), normal(1, 1, length)
    yield Row(
        f"scale and shift {tokens}×{length}",
        [x],
        lambda x: mlx_norms.layer_norm(x, None, None, EPS, scale=scale, shift=shift),
        lambda x: mx.fast.layer_norm(x, None, None, EPS) * (1 + scale) + shift,
    )
    for shape in images:
        layer = nn.GroupNorm(min(32, shape[-1]), shape[-1], pytorch_compatible=True)
        layer.set_dtype(BF16)
        yield Row(
            f"group_norm {'×'.join(map(str, shape))}",
            [normal(*shape)],
            lambda x, of=layer: mlx_norms.group_norm(
                x, of.num_groups, of.weight, of.bias, of.eps, pytorch_compatible=True
            ),
            layer,
        )


def products(length: int, width: int) -> Iterator[Row]:
    """In one launch, to be compared at numbers of rows at which MLX's would be taken."""
    w, b, matrix = normal(length), normal(length), normal(width, length) / length**0.5
    parts = mx.quantize(matrix, **QUANTIZED)
    mx.eval(w, b, matrix, parts)

    def quantized(x):
        return mx.quantized_matmul(x, *parts, transpose=True, **QUANTIZED)

    for rows in PRODUCT_ROWS:
        x, where = [normal(rows, length)], f"{rows} rows, {length} to {width}"
        yield Row(
            f"quantized_matmul {where}",
            x,
            lambda x: mlx_norms.quantized_matmul(x, *parts, **QUANTIZED),
            quantized,
        )
        yield Row(
            f"rms_norm and 4 bits {where}",
            x,
            lambda x: mlx_norms.rms_norm_linear(x, w, [parts], EPS),
            lambda x: quantized(mx.fast.rms_norm(x, w, EPS)),
        )
        yield Row(
            f"layer_norm and 4 bits {where}",
            x,
            lambda x: mlx_norms.layer_norm_linear(x, w, b, [parts], EPS),
            lambda x: quantized(mx.fast.layer_norm(x, w, b, EPS)),
        )
        yield Row(
            f"rms_norm and product {where}",
            x,
            lambda x: mlx_norms.rms_norm_linear(x, w, matrix, EPS),
            lambda x: mx.fast.rms_norm(x, w, EPS) @ matrix.T,
        )


def ropes(tokens: tuple[int, ...]) -> Iterator[Row]:
    for n in tokens:
        shape = Shape(1, n, 128)
        functions = shape.functions()
        yield Row(f"qk_norm_rope {n}", shape.inputs(), functions["ours"], functions["stock"])


def groups(tiny: bool) -> dict[str, Iterator[Row]]:
    """The rows of each kind, made when they are asked for."""
    if tiny:
        return {
            "norms": norms([(2, 64)]),
            "around norms": around_norms(3, 64, [(1, 4, 4, 64)]),
            "products": products(128, 8),
            "ropes": ropes((1,)),
        }
    return {
        "norms": norms([(1, 1024), (1, 4096), (512, 4096)]),
        "around norms": around_norms(4096, 3072, [(1, 64, 64, 512), (1, 512, 512, 128)]),
        "products": products(4096, 4096),
        "ropes": ropes((1, 512)),
    }


def rows(tiny: bool) -> Iterator[Row]:
    for of in groups(tiny).values():
        yield from of


class FirstUse:
    """A call in a process of its own, which says how long it took."""

    most, overlap = 1, False

    def __init__(self, call: str, device: str, checked: bool) -> None:
        self._command = [sys.executable, "-c", PROCESS.format(call=call), device]
        self._environment = os.environ | {"MLX_NORMS_SELF_CHECK": str(int(checked))}

    def seconds(self, count: int) -> float:
        """NaN, with a line that says why, if the process fails."""
        try:
            return self.once()
        except RuntimeError as error:
            print(error, file=sys.stderr)
            return math.nan

    def once(self) -> float:
        """The seconds of the call.

        Raises:
            RuntimeError: If its process fails, with what that said.
        """
        options = dict(capture_output=True, text=True)
        done = subprocess.run(self._command, env=self._environment, **options)
        if done.returncode != 0:
            raise RuntimeError(f"A first call failed: {' '.join(done.stderr.split())[-600:]}")
        return float(done.stdout)


def case(row: Row) -> Case:
    def sides() -> dict:
        functions = {"ours": row.ours, "stock": row.stock}
        size = sum(array.nbytes for array in row.arrays)
        providers.make_room()
        sizes = dict(of_bytes=size, output_bytes=row.arrays[0].nbytes)
        found = providers.in_turn(functions, row.arrays, **sizes)
        found["ours"].context = products_of_more_rows
        return found

    def extras(side: str) -> dict:
        return dict(fell_back=fell_back(row) if side == "ours" else "")

    labels, hows = dict(call=row.name), ("many", "one")
    return Case(labels, sides, least=dict(stock=1), hows=hows, extras=extras)


def fell_back(row: Row) -> str:
    """What of ours MLX computes, by the names of its nodes; nothing if there are kernels for it."""
    with products_of_more_rows():
        mx.eval(row.ours(*row.arrays))  # so that what it reads is no longer in the graph
        found = nodes(*(array for _, array in tree_flatten(row.ours(*row.arrays))))
    return ", ".join(sorted(name for name in found if not name.startswith("mlx_norms::")))


def few_rounds(row: Row, tiny: bool) -> dict:
    """By how it is timed and by side: the least, the median and the greatest of seconds."""
    found: dict[str, object] = dict(fell_back=fell_back(row))
    for how in ("many", "one"):
        of = dataclasses.replace(case(row), count=2 if tiny else None)
        options = dict(rounds=FEW_ROUNDS, sample_seconds=FEW_SECONDS)
        ((_, times),) = clocks.measure([of], how, **options)
        found[how] = {side: bar(time.samples.values) for side, time in times.items()}
    return found


def first_call(name: str, device: str) -> dict:
    """The seconds of a first call, once, by side and by whether it is checked before."""
    return {
        how: {
            side: FirstUse(call, device, how == "checked").once()
            for side, call in zip(("ours", "stock"), FIRST[name], strict=True)
        }
        for how in ("first", "checked")
    }


def bar(values: tuple[float, ...]) -> list[float]:
    """The least, the median and the greatest of a few values: they are no interval."""
    ordered = sorted(values)
    return [ordered[0], ordered[len(ordered) // 2], ordered[-1]]


def tries(tiny: bool) -> Iterator[tuple[str, Callable[[], dict]]]:
    """All that is timed, by name, each with a function that times it in a few rounds."""

    def raising(error: Exception) -> dict:
        raise error

    for kind, of in groups(tiny).items():
        try:
            for row in of:
                yield row.name, functools.partial(few_rounds, row, tiny)
        except Exception as error:  # of arrays that cannot be made
            yield f"the rest of {kind}", functools.partial(raising, error)
    for name in [*FIRST][: 1 if tiny else None]:
        yield f"first {name}", functools.partial(first_call, name, "cpu" if tiny else "gpu")


@contextlib.contextmanager
def products_of_more_rows() -> Iterator[None]:
    """In one launch, than are taken so otherwise."""
    _ext.set_product_rows(max(PRODUCT_ROWS))
    try:
        yield
    finally:
        _ext.set_product_rows(0)


def runs(row: Row) -> bool:
    """Whether both sides do; if not, why is said."""
    try:
        with products_of_more_rows():
            mx.eval(row.ours(*row.arrays), row.stock(*row.arrays))
    except Exception as error:  # whatever a GPU's driver raises
        print(f"{row.name} is left out: {_output.line(error)}", file=sys.stderr)
        return False
    return True


def cases(args: argparse.Namespace) -> Iterator[Case]:
    native = os.environ.get("MLX_NORMS_NATIVE_BFLOAT") == "1"
    for row in rows(args.tiny):
        if (not native or row.arrays[0].dtype == BF16) and runs(row):
            yield case(row)
    device = "cpu" if args.tiny else "gpu"
    for name in [*FIRST][: 1 if args.tiny else None]:
        for how in ("first", "checked"):
            sides = {
                side: FirstUse(call, device, how == "checked")
                for side, call in zip(("ours", "stock"), FIRST[name], strict=True)
            }
            yield Case(dict(call=name), lambda sides=sides: sides, count=1, hows=(how,))


HOWS = ("many", "one", "first", "checked")
SUITE = Suite(__doc__, ("call",), cases, HOWS, extras=("fell_back",))
