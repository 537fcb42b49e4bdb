"""Ours against mx.fast, and when ours counts as slower."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from mlx_norms import timing


@dataclass(frozen=True)
class Contest:
    """Seconds a call of each contestant, among them "ours" and "fast"."""

    seconds: dict[str, timing.Samples]
    remeasured: bool

    @property
    def speedup(self) -> timing.Samples:
        """fast's time over ours, round by round."""
        return self.seconds["fast"].over(self.seconds["ours"])

    @property
    def slower(self) -> bool:
        """Whether ours lost three quarters of the rounds of a second, longer measurement."""
        return self.remeasured and self.speedup.quartiles[1] < 1


def hold(contestants: Mapping[str, Callable[[], object]]) -> Contest:
    """Measure, and again, for longer, if ours did not win three quarters of the rounds."""
    first = Contest(timing.measure(contestants, rounds=5, sample_seconds=0.005), remeasured=False)
    if first.speedup.quartiles[0] >= 1:
        return first
    longer = timing.measure(contestants, rounds=20, sample_seconds=0.01)
    return Contest(longer, remeasured=True)
