"""Loads the table of shapes at which ``mx.fast`` was measured faster."""

from __future__ import annotations

import csv
from pathlib import Path

import mlx.core as mx

from .. import _ext, _package_data

TABLE = Path(__file__).with_name("slower.csv")


_COLUMNS = ["backend", "op", "dtype", "rows_from", "rows_to", "length_from", "length_to"]
_OPS = ("rms", "layer", "add_rms", "add_layer")
_DTYPES = {"float32": mx.float32, "float16": mx.float16, "bfloat16": mx.bfloat16}


def load() -> None:
    """Have calls that fall into a cell of the table passed on to ``mx.fast``.

    Raises:
        ImportError: If the table is missing or damaged.
    """
    try:
        with TABLE.open(newline="", encoding="utf-8") as file:
            reader = csv.DictReader(file, strict=True)
            if not set(_COLUMNS) <= set(reader.fieldnames or ()):
                raise ValueError("its first line does not name the columns")
            cells = [_cell(row) for row in reader]
    except (OSError, ValueError, csv.Error) as error:
        # With the name, python -m mlx_norms prints the sentence without a traceback.
        raise ImportError(_package_data.damaged(TABLE, error), name="mlx_norms") from None
    _ext.set_slower_cells(cells)


def _cell(row: dict[str, str | None]) -> tuple:
    backend, op, dtype, *ranges = (row[column] or "" for column in _COLUMNS)
    if op not in _OPS or dtype not in _DTYPES:
        raise ValueError(f"there is no norm {op!r} of {dtype!r}")
    return backend, op, _DTYPES[dtype], *map(int, ranges)
