"""Tables of figures in CSV, and what of new figures is worse than of stored ones."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterable, Mapping

from .measure import Measured, Specialization
from .mesa import CLASSES, Statistics

FIGURES = ("half_registers", "threads_per_core", "instructions", "spills", "fills", "code_bytes")
FIGURES += ("threadgroup_bytes",)
COLUMNS = ("library", "kernel", "constants", "group", "compiled_for", "chip", *FIGURES, *CLASSES)
COLUMNS += ("refused", "call")
MORE_INSTRUCTIONS = 1.10

Row = Mapping[str, str]


def rows(
    measured: Iterable[Measured], calls: Mapping[Specialization, list[str]]
) -> list[dict[str, str]]:
    """A row for each specialization, or for each chip where their figures differ, with a call."""
    found = []
    for one in measured:
        chips: dict[str, tuple[Statistics | str, list[str]]] = {}
        for chip, result in one.by_chip.items():
            chips.setdefault(repr(result), (result, []))[1].append(chip)
        for result, names in chips.values():
            row = dict.fromkeys(COLUMNS, "")
            row |= {
                "library": one.of.library,
                "kernel": one.of.kernel,
                "constants": " ".join(f"{name}={value}" for name, value in one.of.constants),
                "group": threads(one.of.group),
                "compiled_for": threads(one.group),
                "chip": " ".join(names),
                "call": calls[one.of][0],
            }
            if isinstance(result, str):
                row["refused"] = result
            else:
                row |= {name: str(getattr(result, name)) for name in FIGURES}
                row |= {name: str(n) for name, n in result.classes.items()}
            found.append(row)
    return found


def threads(group: tuple[int, ...] | None) -> str:
    return "x".join(str(n) for n in group if n > 1) if group else ""


def write(table: Iterable[Row]) -> str:
    text = io.StringIO()
    writer = csv.DictWriter(text, COLUMNS, lineterminator="\n")
    writer.writeheader()
    writer.writerows(table)
    return text.getvalue()


def read(text: str) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(text)))


def worst(table: Iterable[Row]) -> list[dict[str, str]]:
    """The worst figures of each kernel that an op launches, in the row with most instructions."""
    of_kernel: dict[tuple[str, ...], list[Row]] = {}
    for row in table:
        of_kernel.setdefault(_key(row), []).append(row)
    found = []
    for rows_ in of_kernel.values():
        measured = [row for row in rows_ if not row["refused"]]
        longest = max(measured or rows_, key=lambda row: int(row["instructions"] or 0))
        figures = {}
        for name in FIGURES if measured else ():
            of_all = [int(row[name]) for row in measured]
            figures[name] = str(min(of_all) if name == "threads_per_core" else max(of_all))
        found.append({**longest, **figures})
    return found


def worse(old: Iterable[Row], new: Iterable[Row]) -> list[str]:
    """A sentence for each of the worst rows that is worse than the stored one, or has none.

    Stored is the row of the same kernel and op; of an op whose plans have changed, one of the same
    family of kernels.
    """
    by_key: dict[tuple[str, ...], Row] = {}
    by_family: dict[tuple[str, ...], Row] = {}
    for row in _by_chip(old):
        by_key.setdefault(_key(row), row)
        by_family.setdefault(_family(row), row)
    found = []
    for row in worst(_by_chip(new)):
        before = by_key.get(_key(row)) or by_family.get(_family(row))
        about = f"{row['kernel']} of {row['call']} on {row['chip']}"
        if before is None:
            found.append(f"{about}: no figures are stored")
        else:
            found += [f"{about}: {reason}" for reason in _reasons(before, row)]
    return found


def _by_chip(table: Iterable[Row]) -> list[Row]:
    return [{**row, "chip": chip} for row in table for chip in row["chip"].split()]


def _key(row: Row) -> tuple[str, ...]:
    names = ("library", "kernel", "compiled_for", "chip")
    return *(row[name] for name in names), _op(row)


def _family(row: Row) -> tuple[str, ...]:
    return re.sub(r"[\d_]+$", "", row["kernel"]), _op(row), row["chip"]


def _op(row: Row) -> str:
    """The call without its sizes and dtypes."""
    words = row["call"].replace(" unaligned", "").split()
    return " ".join(word for word in words if not re.search(r"^\d|float", word))


def _reasons(old: Row, new: Row) -> list[str]:
    if new["refused"]:
        return [] if old["refused"] else [f"refused: {new['refused']}"]
    if old["refused"]:
        return []
    before, now = ({name: int(row[name]) for name in FIGURES} for row in (old, new))
    found = []
    if now["spills"] > before["spills"]:
        found.append(f"{now['spills']} spills, where there were {before['spills']}")
    if now["threads_per_core"] < before["threads_per_core"]:
        found.append(
            f"{now['threads_per_core']} threads per core, where there were"
            f" {before['threads_per_core']}"
        )
    if now["instructions"] > MORE_INSTRUCTIONS * before["instructions"]:
        found.append(
            f"{now['instructions']} instructions, where there were {before['instructions']}"
        )
    return found
