"""What a decode step costs the host and the device, each apart from the other."""

from __future__ import annotations

import contextlib
import multiprocessing
import statistics
import time
import warnings
from collections.abc import Callable, Iterable
from concurrent.futures.process import BrokenProcessPool, ProcessPoolExecutor
from dataclasses import dataclass

import mlx.core as mx
import mlx.nn as nn

from mlx_norms.commands._sides import CONTEXTS

from . import llama, models
from .cupti import Trace

_WARM_UP = 3  # steps


class HostTime:
    """A step's time on the CPU of the thread that builds and encodes it, for timing.measure.

    The device is idle before each step. If MLX makes the thread wait for the device within a step,
    as with many graphs in flight, the wait takes none of its CPU's time and does not count.
    """

    most, overlap = 1 << 62, False

    def __init__(
        self,
        model: nn.Module,
        tokens: mx.array,
        cache: list,
        context: Callable[[], contextlib.AbstractContextManager] = contextlib.nullcontext,
    ) -> None:
        self._model, self._tokens, self._cache = model, tokens, cache
        self._context = context

    def seconds(self, count: int) -> float:
        """``count`` times the median of so many steps."""
        tokens, taken = self._tokens, []
        with self._context():
            for _ in range(count):
                mx.synchronize()
                start = time.thread_time()
                tokens = models.step(self._model, tokens, self._cache)
                mx.async_eval(tokens)
                taken.append(time.thread_time() - start)
            mx.synchronize()
        models.trim(self._cache, count * tokens.size)
        return count * statistics.median(taken)


@dataclass(frozen=True)
class DeviceTime:
    """What the device does in a step.

    Attributes:
        seconds: During which at least one kernel runs.
        kernels: Their number.
    """

    seconds: float
    kernels: float


def device_times(
    shapes: llama.Shapes, bits: int | None, prompt: int, rows: Iterable[int], count: int
) -> dict[tuple[int, str], DeviceTime]:
    """A step's by its rows and by side; none where CUPTI is not to be had.

    By a process of its own, with a model like the caller's: CUPTI slows what it watches, and does
    not see graphs that were made before it.
    """
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(1, context) as process:
        on_cpu = mx.default_device() == mx.cpu
        given = (on_cpu, shapes, bits, prompt, tuple(rows), count)
        try:
            return process.submit(_device_times, *given).result()
        except BrokenProcessPool as error:
            warnings.warn(f"no kernels' times: {error}", stacklevel=2)
            return {}


def _device_times(
    on_cpu: bool,
    shapes: llama.Shapes,
    bits: int | None,
    prompt_size: int,
    rows: tuple[int, ...],
    count: int,
) -> dict[tuple[int, str], DeviceTime]:
    mx.set_default_device(mx.cpu if on_cpu else mx.gpu)
    if not Trace.available():
        return {}
    ranges = {}
    with Trace() as trace:
        mx.random.seed(0)
        model, _ = llama.build(shapes, bits)
        prompt = mx.random.randint(0, shapes.vocab_size, (prompt_size,))
        for n in rows:
            token, cache = models.prefill(model, prompt)
            tokens = mx.repeat(token, n)
            mx.eval(tokens)
            for side, context in CONTEXTS.items():
                with context():
                    models.decode(model, tokens, cache, _WARM_UP)
                    mx.synchronize()
                    ranges[n, side] = f"{n} {side}"
                    with trace.range(ranges[n, side]):
                        models.decode(model, tokens, cache, count)
    return {
        key: DeviceTime(of.seconds / count, of.kernels / count)
        for key, name in ranges.items()
        if (of := trace.activity.get(name))
    }
