"""Loads the table of shapes at which ``mx.fast`` was measured faster."""

from __future__ import annotations

import csv
from pathlib import Path

import mlx.core as mx

from .. import _ext

TABLE = Path(__file__).with_name("slower.csv")


def load() -> None:
    """Have calls that fall into a cell of the table passed on to ``mx.fast``."""
    with TABLE.open(newline="") as file:
        rows = list(csv.DictReader(file))
    _ext.set_slower_cells([_cell(row) for row in rows])


def _cell(row: dict[str, str]) -> tuple:
    ranges = (int(row[key]) for key in ("rows_from", "rows_to", "length_from", "length_to"))
    return (row["backend"], row["op"], getattr(mx, row["dtype"]), *ranges)
