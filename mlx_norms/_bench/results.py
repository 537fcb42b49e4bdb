"""A measured figure, and the CSV files that figures go to."""

from __future__ import annotations

import csv
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TextIO

from . import timing

COLUMNS = ["section", "op", "dtype", "rows", "length", "provider", "method", "inputs", "sets"]
COLUMNS += ["us", "us_lower", "us_upper", "gbps", "gflops", "bytes_an_element", "of_copy"]
COLUMNS += ["of_peak", "over_baseline", "copy_gbps", "peak_gflops", "rounds", "calls"]


@dataclass(frozen=True)
class Line:
    """What one provider did at one shape.

    Attributes:
        section: The bench's subcommand.
        rows, length: Of the op; of a matrix product, those of its square matrices.
        method: The clock: "device", "device, host" where the device had to wait, or "evals".
        inputs: Where they were, in "memory" or in the "cache"; sets of them were taken in turn.
        seconds: A call's.
        moved: Bytes that a call reads and writes, each tensor counted once.
        flops: Operations of a call.
        elements: Of the op's input or of the product, for bytes per element.
        copy: Bytes a second of a copy in the same run.
        copy_is_bytes: Whether its bytes are most of that copy's time, and not the call.
        peak: Operations a second of MLX's own matmul in the same run, where it was measured.
        baseline: The time of mx.fast, or of MLX's matmul, over this one, round by round.
        fixes: What a rung of a ladder fixes.
    """

    section: str
    op: str
    dtype: str
    rows: int
    length: int
    provider: str
    method: str
    inputs: str
    sets: int
    seconds: timing.Samples
    moved: int
    flops: int
    elements: int
    copy: float
    copy_is_bytes: bool
    peak: float | None
    calls: int
    baseline: timing.Ratio | None = None
    fixes: str = ""

    @property
    def rate(self) -> float:
        """Bytes a second."""
        return self.moved / self.seconds.median

    @property
    def of_copy(self) -> float | None:
        """The pace over that of a copy, None where that is not one of bytes."""
        return self.rate / self.copy if self.copy_is_bytes else None

    @property
    def flop_rate(self) -> float:
        return self.flops / self.seconds.median

    @property
    def bytes_an_element(self) -> float:
        return self.moved / self.elements

    @property
    def multiplies(self) -> bool:
        """Whether operations are what it is measured by, not bytes."""
        return self.op == "sgemm"

    def figures(self) -> dict[str, object]:
        """For ``--json``: those of a line of the file, with samples and ratios whole."""
        values = {name: None if value == "" else value for name, value in self.values().items()}
        for name in ("us", "us_lower", "us_upper", "rounds"):
            del values[name]
        return values | {
            "seconds": self.seconds,
            "over_baseline": self.baseline,
            "fixes": self.fixes or None,
        }

    def values(self) -> dict[str, object]:
        """By the names of COLUMNS."""
        lower, upper = self.seconds.quartiles
        return {
            **{name: getattr(self, name) for name in COLUMNS[:9]},
            "us": self.seconds.median * 1e6,
            "us_lower": lower * 1e6,
            "us_upper": upper * 1e6,
            "gbps": self.rate / 1e9,
            "gflops": self.flop_rate / 1e9 if self.multiplies else "",
            "bytes_an_element": self.bytes_an_element,
            "of_copy": "" if self.of_copy is None else self.of_copy,
            "of_peak": self.flop_rate / self.peak if self.multiplies and self.peak else "",
            "over_baseline": self.baseline.median if self.baseline else "",
            "copy_gbps": self.copy / 1e9,
            "peak_gflops": self.peak / 1e9 if self.peak else "",
            "rounds": len(self.seconds.values),
            "calls": self.calls,
        }


class CsvFile:
    """Rows of figures, each with the facts they depend on, written while the run goes on."""

    def __init__(self, file: TextIO, columns: Iterable[str], facts: Mapping[str, str]) -> None:
        self._file = file
        self._facts = facts
        self._writer = csv.DictWriter(file, [*columns, *facts], lineterminator="\n")
        self._writer.writeheader()

    def write(self, values: Mapping[str, object]) -> None:
        row = {key: _text(value) for key, value in values.items()}
        self._writer.writerow({**row, **self._facts})
        self._file.flush()


def _text(value: object) -> object:
    if isinstance(value, float):
        return "" if math.isnan(value) else f"{value:.5g}"
    return value
