"""Measures contestants cell by cell, and what they are held against, in one run."""

from __future__ import annotations

import gc
from collections.abc import Callable
from dataclasses import dataclass, field

import mlx.core as mx

from mlx_norms import timing

from . import clocks, device_copy, machine
from .contestants import Calls, copies, make_room, regime, sets_needed
from .results import Line

BASELINES = ("mx.fast", "mlx")
_PEAK_SIZE = {"cpu": 1024, "cuda": 8192, "metal": 4096}


@dataclass
class Measuring:
    """How to measure.

    Attributes:
        rounds: Samples of each contestant.
        hot: Whether inputs are to stay in the cache.
        say: Takes a line for the user.
    """

    rounds: int
    hot: bool
    say: Callable[[str], None]
    _pace: dict[str, float] = field(default_factory=dict)

    def copy(self, moved: int) -> float:
        """Bytes a second that a copy from past the cache reads and writes.

        It is the pace of the device's memory, from a large one. On the CPU, where it depends on the
        size what memory costs to get, it is that of a copy that moves as many bytes.
        """
        large = device_copy.size()
        size = max(1, moved // 2) if machine.backend() == "cpu" else large
        if (key := f"copy of {size}") not in self._pace:
            seconds = device_copy.measure(size)
            lower, upper = (2 * size / quartile / 1e9 for quartile in reversed(seconds.quartiles))
            self._pace[key] = rate = 2 * size / seconds.median
            if size >= large:
                self.say(
                    f"A copy of {size / 2**20:.4g} MiB: {rate / 1e9:.4g} GB/s, quartiles "
                    f"{lower:.4g} to {upper:.4g}."
                )
            make_room()
        return self._pace[key]

    @property
    def peak(self) -> float:
        """Operations a second of MLX's own matmul in float32, at a large size."""
        if "peak" not in self._pace:
            size = _PEAK_SIZE[machine.backend()]
            matrices = [mx.random.normal((size, size)) for _ in range(2)]
            own = Calls(mx.matmul, copies(matrices, 1), output_bytes=4 * size**2)
            seconds = self.times({"mlx": clocks.clock(own)})["mlx"]
            self._pace["peak"] = rate = 2 * size**3 / seconds.median
            self.say(f"MLX's matmul of {size}x{size} float32: {rate / 1e9:.4g} GFLOP/s.")
        return self._pace["peak"]

    def times(self, clocked: dict[str, object]) -> dict[str, timing.Samples]:
        """Seconds a call of contestants that have a clock."""
        gc.collect()
        gc.disable()
        try:
            seconds = next(iter(clocked.values())).sample_seconds
            return timing.measure(clocked, rounds=self.rounds, sample_seconds=seconds)
        finally:
            gc.enable()

    def lines(
        self, section: str, cell, of_cell: dict, *, peak: bool = False, fixes: dict | None = None
    ) -> list[Line]:
        """Lines of contestants at a cell. A peer that cannot do it is left out."""
        clocked = {}
        for name, contestant in of_cell.items():
            try:
                contestant.finish(contestant.prepare(1))
            except Exception as error:  # torch and Triton raise what they like
                if isinstance(contestant, Calls):
                    raise
                self.say(f"{name} does not do {cell}: {error}")
            else:
                clocked[name] = clocks.clock(contestant)
        times = self.times(clocked)
        baseline = next((times[name] for name in BASELINES if name in times), None)
        return [
            Line(
                *(section, cell.op, cell.dtype, cell.rows, cell.length, name),
                method=clocked[name].method,
                inputs=regime(cell.input_bytes, self.hot),
                sets=sets_needed(cell.input_bytes, self.hot),
                seconds=seconds,
                moved=cell.moved,
                flops=cell.flops,
                elements=cell.elements,
                copy=self.copy(cell.moved),
                peak=self.peak if peak else None,
                calls=clocked[name].calls,
                baseline=baseline.over(seconds) if baseline else None,
                fixes=(fixes or {}).get(name, ""),
            )
            for name, seconds in times.items()
        ]
