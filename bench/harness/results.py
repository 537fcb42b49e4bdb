"""A measured figure, and the CSV files that figures are written to."""

from __future__ import annotations

import csv
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import TextIO

from mlx_norms._measure import timing

from .clocks import Time

# Of every suite's file, after the labels of its cases. bench/results has such files.
COLUMNS = ["how", "side", "method", "us", "us_lower", "us_upper", "over", "over_lower"]
COLUMNS += ["over_upper", "alone_us", "alone_over", "alone_lower", "alone_upper", "moved", "share"]
COLUMNS += ["limit", "kernels", "calls", "rounds"]


@dataclass(frozen=True)
class Line:
    """What a side of a case takes.

    Attributes:
        labels: What tells the case from others of its suite.
        how: What was timed, as the clock's.
        over: A peer's time over ours, or stock's over a side that is ours; None of ours or stock.
        alone: The same of calls that are evaluated one by one.
        moved: Bytes that a call must read and write, or operations.
        limit: What a copy moves a second, or a large product computes; NaN if that is not known.
        extras: What else a suite knows of the side.
    """

    labels: Mapping[str, object]
    how: str
    side: str
    time: Time
    over: timing.Ratio | None = None
    alone: timing.Ratio | None = None
    moved: int = 0
    limit: float = math.nan
    extras: Mapping[str, object] = field(default_factory=dict)

    @property
    def share(self) -> float:
        """What it reaches of the limit."""
        return self.moved / self.time.samples.median / self.limit if self.moved else math.nan

    def values(self) -> dict[str, object]:
        """The values by the names of the columns."""

        def figures(samples: timing.Samples | None, factor: float = 1.0) -> tuple:
            return samples.figures(factor) if samples else ("", "", "")

        time = self.time
        values = (self.how, self.side, time.method, *figures(time.samples, 1e6))
        values += (*figures(self.over), time.alone.median * 1e6 if time.alone else "")
        values += (*figures(self.alone), self.moved or "", self.share, self.limit / 1e9)
        values += (time.kernels or "", time.calls or "", len(time.samples.values))
        return {**self.labels, **dict(zip(COLUMNS, values, strict=True)), **self.extras}

    def figures(self) -> dict[str, object]:
        """The values for ``--json``, with samples and ratios whole."""
        values = {name: None if each == "" else each for name, each in self.values().items()}
        both = ("us", "over", "alone")
        for name in [*both, *(f"{of}_{end}" for of in both for end in ("lower", "upper", "over"))]:
            values.pop(name, None)
        alone = {"alone": self.time.alone, "alone_over": self.alone}
        return values | {"seconds": self.time.samples, "over": self.over} | alone


class CsvFile:
    """Rows of figures, each with the facts they depend on, written during the run."""

    def __init__(self, file: TextIO, columns: Iterable[str], facts: Mapping[str, str]) -> None:
        self._file = file
        self._facts = facts
        self._writer = csv.DictWriter(file, [*columns, *facts], lineterminator="\n")
        self._writer.writeheader()

    def write(self, values: Mapping[str, object]) -> None:
        row = {key: _text(value) for key, value in values.items()}
        self._writer.writerow({**row, **self._facts})
        self._file.flush()


def write_csv(
    path: str, columns: Iterable[str], lines: Iterable[Mapping], facts: Mapping[str, str]
) -> None:
    """Writes rows that are all known, as a :class:`CsvFile` does."""
    with open(path, "w", newline="") as file:
        written = CsvFile(file, columns, facts)
        for line in lines:
            written.write(line)


def _text(value: object) -> object:
    if isinstance(value, float):
        return "" if math.isnan(value) else f"{value:.5g}"
    return value
