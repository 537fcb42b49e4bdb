"""Measures providers config by config, with the copy and peak they are compared to, in one run."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import mlx.core as mx

from mlx_norms._measure import machine, timing

from . import clocks, device_copy, providers
from .providers import Calls, copies, regime, sets_needed
from .results import Line

BASELINES = ("mx.fast", "mlx")
_CALL = "call"
_PEAK_SIZE = {"cpu": 1024, "cuda": 8192, "metal": 4096}
# For estimates: samples besides those of the rounds, by how much a sample is longer than it must
# be, a config's seconds besides, bytes per second of a chain of ops and of filling memory, and how
# many times as long a gradient takes with its forward and its graph, which are not timed.
_WARM_UPS, _LONGER, _AROUND, _CHAIN, _WITH_FORWARD = 3, 1.2, 0.1, 1e9, 3


@dataclass
class Measuring:
    """How to measure.

    Attributes:
        rounds: Samples per provider.
        hot: Whether inputs stay in the cache.
        say: Prints a line for the user.
    """

    rounds: int
    hot: bool
    say: Callable[[str], None]
    _pace: dict[str, float] = field(default_factory=dict)

    @property
    def copy(self) -> float:
        """Bytes per second that a large copy reads and writes: the speed of the device's memory."""
        if "copy" not in self._pace:
            self._pace["copy"] = device_copy.rate(device_copy.size(), self.say)
        return self._pace["copy"]

    @property
    def peak(self) -> float:
        """Operations per second of a float32 matmul at a large size, by ``peak_of``."""
        if "peak" not in self._pace:
            size = _PEAK_SIZE[machine.backend()]
            seconds = self.times({self.peak_of: _matmul(size)})[self.peak_of]
            self._pace["peak"] = rate = 2 * size**3 / seconds.median
            self.say(f"{self.peak_of} of {size}x{size} float32: {rate / 1e9:.4g} GFLOP/s.")
        return self._pace["peak"]

    @property
    def peak_of(self) -> str:
        """Whose matmul that is. On the CPU MLX's is slower than some norms."""
        return "NumPy's matmul" if machine.backend() == "cpu" else "MLX's matmul"

    def estimate(self, config, peer_count: int) -> float:
        """About how many seconds :meth:`lines` takes at a config, without compiling kernels."""
        copied = 3 if machine.backend() == "cpu" else 0
        least = _LONGER * clocks.kind().sample_seconds
        call = config.moved / _CHAIN if machine.backend() == "cpu" else 0
        around = _WITH_FORWARD if config.backward else 1
        samples = copied * least + around * (least + peer_count * max(least, call))
        filled = sets_needed(config.input_bytes, self.hot) * config.set_bytes + 2 * config.moved
        return _AROUND + filled / _CHAIN + (self.rounds + _WARM_UPS) * samples

    def times(self, clocked: dict[str, object]) -> dict[str, timing.Samples]:
        """Seconds per call of providers that have a clock."""
        seconds = clocks.kind().sample_seconds
        return timing.measure(clocked, rounds=self.rounds, sample_seconds=seconds)

    def lines(
        self,
        section: str,
        config,
        of_config: dict,
        *,
        peak: bool = False,
        fixes: dict | None = None,
    ) -> list[Line]:
        """Lines of providers at a config; peers that cannot run it are omitted.

        On the CPU, where the cost of getting memory depends on the size, copies of the same number
        of bytes take turns with the providers.
        """
        able = providers.able(config, of_config, self.say)
        clocked = {name: clocks.clock(provider) for name, provider in able.items()}
        copies = _copies(config.moved) if machine.backend() == "cpu" else {}
        times = self.times(clocked | copies)
        copied = {name: times.pop(name) for name in copies}
        copy, is_bytes = _pace(copied, config.moved) if copies else (self.copy, True)
        baseline = next((times[name] for name in BASELINES if name in times), None)
        return [
            Line(
                *(section, config.op, config.dtype, config.rows, config.length, name),
                method=clocked[name].method,
                inputs=regime(config.input_bytes, self.hot),
                sets=sets_needed(config.input_bytes, self.hot),
                seconds=seconds,
                moved=config.moved,
                flops=config.flops,
                elements=config.elements,
                copy=copy,
                copy_is_bytes=is_bytes,
                peak=self.peak if peak else None,
                peak_of=self.peak_of,
                calls=clocked[name].calls,
                baseline=baseline.over(seconds) if baseline else None,
                fixes=(fixes or {}).get(name, ""),
            )
            for name, seconds in times.items()
        ]


def _matmul(size: int) -> timing.Timed:
    matrices = [mx.random.normal((size, size)) for _ in range(2)]
    if machine.backend() != "cpu":
        return clocks.clock(Calls(mx.matmul, copies(matrices, 1), output_bytes=4 * size**2))
    import numpy as np

    a, b = map(np.array, matrices)
    return timing.Runs(lambda count: [a @ b for _ in range(count)])


def _copies(moved: int) -> dict[str, object]:
    """The clocks of copies that move this many bytes, and of a copy of one element."""
    calls = device_copy.passes(max(1, moved // 2))
    calls[_CALL] = Calls(mx.abs, [[mx.zeros(1)]], output_bytes=4)
    return {name: clocks.clock(each) for name, each in calls.items()}


def _pace(copied: dict[str, timing.Samples], moved: int) -> tuple[float, bool]:
    """Bytes per second of the fastest copy, and whether its time is mostly spent on bytes."""
    call = copied.pop(_CALL)
    copy = device_copy.fastest(copied.values())
    of_call, _ = copy.over(call).interval
    return moved / copy.median, of_call > 2
