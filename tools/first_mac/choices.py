"""What is chosen for Apple's GPUs without a measurement (csrc/gpu/choices.h), with its other sides.

An item is one call with one row of sides, in seconds: the least, the median and the greatest. An
item that needs another process for a side has that alone, and "row" says which belong together.
"""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from . import items, speed

ROOT = Path(__file__).parents[2]
_HEADS = (32, 128)  # of q at decode
_LENGTH = 4096
_ANGLES = 1 << 18
_ROTATION = """
uint i = thread_position_in_grid.x;
float sum = 0;
for (int k = 0; k < 16; ++k) {{
  float angle = x[i] + float(k);
  {rotate}
  sum += sine + 2.0f * cosine;
}}
y[i] = sum;
"""
_OURS = "SineAndCosine of = sine_and_cosine(angle); float sine = of.sine, cosine = of.cosine;"
_FAST = "float sine = metal::fast::sin(angle), cosine = metal::fast::cos(angle);"
_PRECISE = "float sine = metal::precise::sin(angle), cosine = metal::precise::cos(angle);"


@contextlib.contextmanager
def chosen(name: str, value: int | None) -> Iterator[None]:
    from mlx_norms import _ext

    _ext.set_choice(name, value)
    try:
        yield
    finally:
        _ext.set_choice(name, None)


def timed(
    functions: Mapping[str, Callable], arrays: list, contexts: Mapping[str, Callable]
) -> dict:
    """Sides in turn, in "many" calls and in "one" at a time."""
    import mac
    from harness import clocks, providers
    from harness.suite import Case

    size = sum(array.nbytes for array in arrays)

    def sides() -> dict:
        providers.make_room()
        found = providers.in_turn(functions, arrays, of_bytes=size, output_bytes=size)
        for side, context in contexts.items():
            found[side].context = context
        return found

    of = Case({}, sides, count=2 if items.is_tiny() else None)
    times = {}
    for how in ("many", "one"):
        ((_, found),) = clocks.measure(
            [dataclasses.replace(of)], how, rounds=mac.FEW_ROUNDS, sample_seconds=mac.FEW_SECONDS
        )
        times[how] = {side: mac.bar(time.samples.values) for side, time in found.items()}
    return times


def by_choice(choice: str, values: Mapping[str, int | None], function: Callable, arrays: list):
    """An item's result: a call with each value of a choice."""
    import mac

    contexts = {side: lambda value=value: chosen(choice, value) for side, value in values.items()}
    times = timed(dict.fromkeys(values, function), arrays, contexts)
    back = _only_if_ours(mac, mac.Row(choice, arrays, function, function))
    return {"choice": choice} | times | back


def listed() -> Iterator[items.Item]:
    for name, measure in _listed():
        yield name, lambda measure=measure: speed.with_warnings(measure)


def _listed() -> Iterator[items.Item]:
    speed._use_the_device()
    import mlx.core as mx

    import mac
    import mlx_norms
    from mlx_norms import _ext
    from qk_norm_rope import Shape

    tiny = items.is_tiny()
    length = 64 if tiny else _LENGTH
    groups = {"256 (today)": None, "64": 64, "32": 32}
    shape = Shape(1, 1, 128)
    rope, parts = shape.functions()["ours"], shape.inputs()
    w, heads, row = mac.normal(_HEADS[1]), mac.normal(1, *_HEADS), mac.normal(1, length)
    weight, bias = mac.normal(length), mac.normal(length)
    mx.eval(w, heads, row, weight, bias)

    def norm(x):
        return mlx_norms.rms_norm(x, w, mac.EPS)

    yield (
        "threads of a threadgroup, few rows: qk_norm_rope, 1 token",
        lambda: by_choice("group_threads", groups, rope, parts),
    )
    yield (
        "threads of a threadgroup, few rows: rms_norm of 32 heads",
        lambda: by_choice("group_threads", groups, norm, [heads]),
    )
    yield "threads of a threadgroup, few rows: rms_norms of q and k", _not_switchable
    few = {"0 (today)": None, "4096": 4096, "16384": 16384}
    calls = {
        "rms_norm": lambda x: mlx_norms.rms_norm(x, weight, mac.EPS),
        "layer_norm": lambda x: mlx_norms.layer_norm(x, weight, bias, mac.EPS),
    }
    for name, call in calls.items():
        yield (
            f"few_threads: {name} 1×{length}",
            lambda call=call: by_choice("few_threads", few, call, [row]),
        )
    yield from _products(mac, _ext, tiny)
    yield "rotation: ours, fast:: and precise::, in a kernel of its own", rotations


def _not_switchable() -> dict:
    raise items.NotRun("not switchable: the launch says how many threadgroups each array has")


def _products(mac, _ext, tiny: bool) -> Iterator[items.Item]:
    simds = {"by the weights (today)": None} | {str(n): n for n in (1, 2, 4, 8)}
    size = (128, 8) if tiny else (4096, 4096)
    for row in mac.products(*size):
        if not row.name.startswith(("quantized_matmul", "rms_norm and 4 bits")):
            continue
        rows = row.arrays[0].shape[0]
        if rows in (1, 4, 8):
            yield f"rows of a product: {row.name}", lambda row=row: _one_launch(mac, row)
        if rows in (1, 4):

            def sides(row=row):
                with mac.products_of_more_rows():
                    return by_choice("product_simds", simds, row.ours, row.arrays)

            yield f"SIMD-groups of a product: {row.name}", sides


def _one_launch(mac, row) -> dict:
    """One launch, or the norm and MLX's product; what is taken today by what the graph has."""
    from harness.graph_nodes import nodes

    contexts = {"one launch": mac.products_of_more_rows, "MLX's": contextlib.nullcontext}
    functions = {"one launch": row.ours, "MLX's": row.stock}
    found = timed(functions, row.arrays, contexts)
    pending = row.ours(*row.arrays)
    pending = pending if isinstance(pending, list | tuple) else [pending]
    taken = all(name.startswith("mlx_norms::") for name in nodes(*pending))
    today = "one launch" if taken else "MLX's"
    return {"choice": "product_rows", "today": today} | found | _only_if_ours(mac, row)


def _only_if_ours(mac, row) -> dict:
    """A row in which MLX's kernels ran for ours decides nothing."""
    back = mac.fell_back(row)
    return {"fell_back": back} if back else {}


def rotations() -> dict:
    import mlx.core as mx

    import mac

    if not mx.metal.is_available():
        raise items.NotRun("kernels of one's own need Metal; the package has no switch for this")
    text = (ROOT / "kernels" / "rope" / "angles.h").read_text().replace("#pragma once", "")
    sides = {"ours (today)": (_OURS, text), "fast": (_FAST, ""), "precise": (_PRECISE, "")}
    functions = {
        side: _rotation(f"rotation_{i}", rotate, header)
        for i, (side, (rotate, header)) in enumerate(sides.items())
    }
    angles = mx.random.uniform(0, 4096, (_ANGLES,))
    mx.eval(angles)
    note = "The package has no switch: a kernel of its own shows what one would be worth."
    return (
        {"choice": "rotation", "note": note}
        | timed(functions, [angles], {})
        | {"rounds": mac.FEW_ROUNDS}
    )


def _rotation(name: str, rotate: str, header: str) -> Callable:
    import mlx.core as mx

    source = _ROTATION.format(rotate=rotate)
    kernel = mx.fast.metal_kernel(
        name=name, input_names=["x"], output_names=["y"], source=source, header=header
    )
    return lambda x: kernel(
        inputs=[x],
        grid=(x.size, 1, 1),
        threadgroup=(256, 1, 1),
        output_shapes=[x.shape],
        output_dtypes=[x.dtype],
    )


def native(side: str) -> Iterator[items.Item]:
    """Calls of bfloat16 in this process, whose environment says which conversions they have."""
    speed._use_the_device()
    import mac

    sizes = [(2, 64)] if items.is_tiny() else [(1, 4096), (512, 4096)]
    for row in mac.norms(sizes):
        if row.arrays[0].dtype == mac.BF16:
            yield f"{row.name} | {side}", lambda row=row: _ours_alone(row, side)


def _ours_alone(row, side: str) -> dict:
    import mac

    times = timed({side: row.ours}, row.arrays, {})
    back = mac.fell_back(row)
    labels = {"choice": "native_bfloat", "row": f"conversions of bfloat16: {row.name}"}
    return labels | times | ({"fell_back": back} if back else {})


def first_calls(side: str) -> Iterator[items.Item]:
    """Of the package that this process imports: with its metallibs, or a copy that has none."""
    import mac

    device = "cpu" if items.is_tiny() else "gpu"
    for name in [*mac.FIRST][: 1 if items.is_tiny() else None]:

        def first(name=name):
            seconds = mac.FirstUse(mac.FIRST[name][0], device, False).once()
            labels = {"choice": "metallibs", "row": f"first call: {name}"}
            return labels | {"first": {side: [seconds] * 3}}

        yield f"first {name} | {side}", first
