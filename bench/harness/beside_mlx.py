"""Ours beside MLX's ops on a GPU, evaluated eagerly and under mx.compile, and a copy's speed."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Protocol

import mlx.core as mx

from . import device_copy, kernels
from .providers import Calls, copies, sets_needed
from .script import Script
from .tables import red_if, table

CACHES = 8  # caches' worth of inputs used in turn: with two, some stay in the cache
LARGE = 32 << 20  # bytes in and out, from which shares of a copy are meant
SLOWER = 0.98  # than MLX's, if less
# Bytes in and out, from which a copy is timed: below, it takes long and says less.
_COPIED = 4 << 20
_AT_ONCE = 12  # configs of a trace, after which their lines are written

GAINS = ("eager_over", "compiled_over")
COLUMNS = ["method", "us", "eager_us", "compiled_us"]
COLUMNS += ["of_copy", "copy_gbps", "eager_over", "eager_lower", "eager_upper"]
COLUMNS += ["compiled_over", "compiled_lower", "compiled_upper"]
COLUMNS += ["alone_us", "alone_eager_us", "alone_compiled_us", "alone_eager_over"]
COLUMNS += ["alone_compiled_over", "kernels_per_call", "eager_kernels", "compiled_kernels"]


def gains(row: dict[str, str]) -> list[str]:
    """How many times as long MLX's ops take, for a table."""
    return [f"{float(row[name]):.2f}" for name in GAINS]


class Measured(Protocol):
    """What is timed."""

    name: str
    dtype: str
    shape: str
    backward: bool
    moved: int  # bytes of the tensors of x's shape, as often as each is needed
    input_bytes: int
    output_bytes: int

    def inputs(self) -> list[mx.array]: ...
    def cotangents(self) -> list[mx.array]: ...


def providers(config: Measured, ours: Callable, mlx: Callable) -> dict[str, Calls]:
    count = sets_needed(config.input_bytes, caches=CACHES)
    inputs = copies(config.inputs(), count)
    cotangents = copies(config.cotangents(), count) if config.backward else None
    found = {"ours": Calls(ours, inputs, cotangents, config.output_bytes)}
    found["eager"] = Calls(mlx, inputs, cotangents, config.output_bytes)
    function, arrays = mlx, inputs
    if config.backward:
        arrays = [[*of, *its] for of, its in zip(inputs, cotangents, strict=True)]
        size = len(inputs[0])

        def function(*arrays):
            return mx.vjp(mlx, arrays[:size], arrays[size:])[1]

    found["compiled"] = Calls(mx.compile(function), arrays, None, config.output_bytes)
    return found


def run(
    script: Script,
    title: str,
    configs: Iterable[Measured],
    functions: Callable[[Measured], tuple[Callable, Callable]],
    values: Callable[[Measured], list],
    misses: Callable[[Measured, float, list[float]], bool],
    *,
    rounds: int,
    share_text: Callable[[Measured, float], str] = lambda config, share: f"{share:.1%}",
) -> None:
    """Measure configs, print a table, and write a line of each: its ``values``, then COLUMNS.

    Args:
        functions: Ours and MLX's, of a config's inputs.
        misses: Whether a config misses its target, given its share of a copy's speed (NaN if that
            was not measured) and MLX's times over ours: eager, compiled, and both again for calls
            that are evaluated alone, where those were measured.
    """
    configs = list(configs)
    sizes = dict.fromkeys(config.moved // 2 for config in configs if config.moved >= _COPIED)
    rates = {size: device_copy.rate(size, script.say) for size in sizes}

    def measured() -> Iterator[tuple[Measured, dict[str, kernels.KernelTime]]]:
        for i in range(0, len(configs), _AT_ONCE):
            yield from kernels.measure(
                configs[i : i + _AT_ONCE],
                lambda config: providers(config, *functions(config)),
                lambda config: 2 if script.tiny else kernels.calls_past_cache(config),
                rounds=rounds,
                say=script.say,
            ).items()

    numbers = ("ours µs", "of copy", "eager / ours", "compiled / ours", "alone: eager", "compiled")
    found = table(title, ("op", "dtype", "shape"), (*numbers, "by"))
    missed = 0
    for config, of in measured():
        ours, rate = of["ours"], rates.get(config.moved // 2, float("nan"))
        peers = [of["eager"], of["compiled"]]
        share = config.moved / ours.together.median / rate
        gains = [peer.together.over(ours.together) for peer in peers]
        alone = [peer.alone.over(ours.alone) for peer in peers if ours.alone]
        slow = misses(config, share, [gain.median for gain in (*gains, *alone)])
        missed += slow
        found.add_row(
            *(config.name, config.dtype, config.shape, f"{ours.together.median * 1e6:.2f}"),
            *(red_if(slow, share_text(config, share)), *(gain.spread(".2f") for gain in gains)),
            *([f"{gain.median:.2f}" for gain in alone] or ["", ""]),
            ours.method,
        )
        us = [time.together.median * 1e6 for time in (ours, *peers)]
        line = [*values(config), ours.method, *us, share, rate / 1e9]
        line += [n for gain in gains for n in gain.figures()]
        line += [time.alone.median * 1e6 if time.alone else "" for time in (ours, *peers)]
        line += [gain.median for gain in alone] or ["", ""]
        line += [time.kernels or "" for time in (ours, *peers)]
        script.write(*line)
    script.console.print(found)
    script.say(f"{missed} of {len(configs)} configs miss their target.")
