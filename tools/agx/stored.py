"""Tables of figures in CSV, and what of new figures is worse than of stored ones."""

from __future__ import annotations

import csv
import io
import itertools
import re
from collections.abc import Collection, Iterable, Mapping

from .frontend import IN_MEMORY
from .measure import Measured, Specialization
from .mesa import CLASSES, Statistics

FIGURES = ("half_registers", "threads_per_core", "instructions", "spills", "fills", "code_bytes")
FIGURES += ("threadgroup_bytes",)
COLUMNS = ("library", "kernel", "constants", "group", "compiled_for", "chip", *FIGURES, *CLASSES)
COLUMNS += ("refused", "call")
MORE_INSTRUCTIONS = 1.10

Row = Mapping[str, str]
Calls = Mapping[Specialization, list[str]]  # what is launched, with the names of calls


def rows(measured: Iterable[Measured], calls: Calls) -> list[dict[str, str]]:
    """A row for each specialization and op, or for each chip where figures differ, with a call."""
    found = []
    for one in measured:
        chips: dict[str, tuple[Statistics | str, list[str]]] = {}
        for chip, result in one.by_chip.items():
            chips.setdefault(repr(result), (result, []))[1].append(chip)
        of_ops: dict[str, str] = {}
        for name in calls[one.of]:
            of_ops.setdefault(_op(name), name)
        for (result, names), call in itertools.product(chips.values(), of_ops.values()):
            row = dict.fromkeys(COLUMNS, "")
            row |= {
                "library": one.of.library,
                "kernel": one.of.kernel,
                "constants": " ".join(f"{name}={value}" for name, value in one.of.constants),
                "group": threads(one.of.group),
                "compiled_for": threads(one.group),
                "chip": " ".join(names),
                "call": call,
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
    """A sentence for each of the worst rows that is worse than the stored one, if there is one.

    Of a kernel that is now compiled for another number of threads, it is one for as many as before.
    """
    rows = worst(_by_chip(old))
    stored = {key: row for of in (_any_threads, _key) for row in rows for key in [of(row)]}
    found = []
    for row in worst(_by_chip(new)):
        if before := stored.get(_key(row)) or stored.get(_any_threads(row)):
            about = f"{_about(row)} on {row['chip']}"
            found += [f"{about}: {reason}" for reason in _reasons(before, row)]
    return found


def missing(table: Iterable[Row], calls: Calls) -> list[str]:
    """A sentence for each kernel that an op launches, and of which there is no row."""
    stored = {(row["library"], row["kernel"], _op(row["call"])) for row in table}
    return [
        f"{kernel} of {op}: no figures are stored"
        for library, kernel, op in sorted(_launched(calls) - stored)
    ]


def stale(
    table: Iterable[Row], calls: Calls, constants: Mapping[str, Collection[str]]
) -> list[str]:
    """A sentence for each row of what is there no more.

    Args:
        table: the rows.
        calls: what is launched.
        constants: the names of each library's function constants.
    """
    kernels, found = _launched(calls), []
    for row in table:
        if (row["library"], row["kernel"], _op(row["call"])) not in kernels:
            found.append(f"{_about(row)}: it is not launched")
        names = [one.partition("=")[0] for one in row["constants"].split()]
        gone = [name for name in names if name not in constants.get(row["library"], ())]
        found += [f"{_about(row)}: there is no function constant {name}" for name in gone]
    return found


def _launched(calls: Calls) -> set[tuple[str, str, str]]:
    """Libraries, kernels and ops."""
    return {(of.library, of.kernel, _op(name)) for of, names in calls.items() for name in names}


def _by_chip(table: Iterable[Row]) -> list[Row]:
    return [{**row, "chip": chip} for row in table for chip in row["chip"].split()]


def _key(row: Row) -> tuple[str, ...]:
    return *_any_threads(row), row["compiled_for"]


def _any_threads(row: Row) -> tuple[str, ...]:
    return row["library"], row["kernel"], row["chip"], _op(row["call"])


def _about(row: Row) -> str:
    return f"{row['kernel']} of {row['call']}"


def _op(call: str) -> str:
    """The call without its sizes and dtypes."""
    words = call.replace(" unaligned", "").split()
    return " ".join(word for word in words if not re.search(r"^\d|float", word))


def _reasons(old: Row, new: Row) -> list[str]:
    if new["refused"]:
        known = old["refused"] and not new["refused"].startswith(IN_MEMORY)
        return [] if known else [f"refused: {new['refused']}"]
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
