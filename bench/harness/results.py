"""A measured figure, and the CSV files that figures are written to."""

from __future__ import annotations

import csv
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TextIO

from mlx_norms._measure import timing

COLUMNS = ["section", "op", "dtype", "rows", "length", "provider", "method", "inputs", "sets"]
COLUMNS += ["us", "us_lower", "us_upper", "gbps", "gflops", "bytes_an_element", "of_copy"]
COLUMNS += ["of_peak", "over_baseline", "copy_gbps", "peak_gflops", "rounds", "calls"]


@dataclass(frozen=True)
class Line:
    """The result of one provider at one shape.

    Attributes:
        section: The bench's subcommand.
        rows, length: The op's rows and their length; for a matmul, those of its square matrices.
        method: The clock: "device", "device, host" if the device had to wait, or "evals".
        inputs: Where the inputs were, "memory" or "cache"; several sets were taken in turn.
        seconds: Per call.
        moved: Bytes that a call reads and writes, each tensor counted once.
        flops: Operations per call.
        elements: Elements of the op's input or of the matmul's result, for bytes per element.
        copy: Bytes per second of a copy in the same run.
        copy_is_bytes: Whether the copy's time is mostly spent on bytes, not on making a call.
        peak: Operations per second of a large matmul in the same run, if it was measured.
        peak_of: Whose matmul that is.
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
    peak_of: str = "MLX's matmul"

    @property
    def rate(self) -> float:
        """Bytes per second."""
        return self.moved / self.seconds.median

    @property
    def of_copy(self) -> float | None:
        """The rate over the copy's, or None if the copy's time is not mostly spent on bytes."""
        return self.rate / self.copy if self.copy_is_bytes else None

    @property
    def flop_rate(self) -> float:
        return self.flops / self.seconds.median

    @property
    def bytes_an_element(self) -> float:
        return self.moved / self.elements

    @property
    def multiplies(self) -> bool:
        """Whether it is measured in operations, not bytes."""
        return self.op == "sgemm"

    def figures(self) -> dict[str, object]:
        """The values for ``--json``: those of a CSV line, but with complete samples and ratios."""
        values = {name: None if value == "" else value for name, value in self.values().items()}
        for name in ("us", "us_lower", "us_upper", "rounds"):
            del values[name]
        return values | {
            "seconds": self.seconds,
            "over_baseline": self.baseline,
            "fixes": self.fixes or None,
        }

    def values(self) -> dict[str, object]:
        """The values by the names in COLUMNS."""
        lower, upper = self.seconds.interval
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


def _text(value: object) -> object:
    if isinstance(value, float):
        return "" if math.isnan(value) else f"{value:.5g}"
    return value
