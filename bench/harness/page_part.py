"""A part of a page that is generated from stored measurements: print, check or write it."""

from __future__ import annotations

import argparse
import csv
from collections.abc import Callable, Iterable
from pathlib import Path

Rows = list[dict[str, str]]


def matching(rows: Rows, /, **values: str) -> Rows:
    return [row for row in rows if all(row[name] == value for name, value in values.items())]


def one(rows: Rows, /, **values: str) -> dict[str, str]:
    (row,) = matching(rows, **values)
    return row


def each(rows: Rows, *names: str) -> list:
    """The distinct values of these columns: strings for one column, tuples for several."""
    found = dict.fromkeys(tuple(row[name] for name in names) for row in rows)
    return [values[0] if len(names) == 1 else values for values in found]


def spread(row: dict[str, str], columns: Iterable[str], form: str) -> str:
    """A median with its quartiles in parentheses, from three columns."""
    return "{} ({} to {})".format(*(format(float(row[column]), form) for column in columns))


def on_gpu(row: dict[str, str]) -> str:
    """The GPU and MLX with which it was measured."""
    return f"{row['device'].removeprefix('gpu, ')}, MLX {row['mlx']}"


def markdown(heading: Iterable[str], lines: Iterable[Iterable[str]]) -> str:
    """A Markdown table."""
    heading = list(heading)
    lines = [heading, ["---"] * len(heading), *lines]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def main(
    description: str,
    page: Path,
    marks: tuple[str, str],
    results: list[Path],
    text: Callable[..., str],
) -> int:
    """Runs a script with its command line.

    Args:
        description: What the script is for.
        page: The Markdown file that contains the part.
        marks: The lines before and after the part.
        results: CSV files.
        text: Returns the part, given a list of rows per file.

    Returns:
        The exit status: 1 if asked to check and the page differs.
    """
    parser = argparse.ArgumentParser(
        description=description, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    ways = parser.add_mutually_exclusive_group()
    ways.add_argument("--write", action="store_true", help=f"write it into {page.name}")
    ways.add_argument("--check", action="store_true", help=f"compare it with that of {page.name}")
    args = parser.parse_args()
    rows = []
    for path in results:
        if not path.exists():
            parser.error(f"there is no {path}: measure it first, as above")
        with path.open(newline="") as file:
            rows.append(list(csv.DictReader(file)))
    names = " and ".join(path.name for path in results)
    return put(text(*rows), page, marks, names, write=args.write, check=args.check)


def put(
    made: str, page: Path, marks: tuple[str, str], source: str, *, write: bool, check: bool
) -> int:
    """Writes a part into its page, compares it with the page, or prints it.

    Returns:
        The exit status: 1 if asked to compare and the page differs.
    """
    begin, end = marks
    before, rest = page.read_text().split(begin)
    kept, after = rest.split(end)
    if write:
        page.write_text(before + begin + made + end + after)
    elif check and kept != made:
        print(f"{page.name} does not say what {source} gives:\n{made}")
        return 1
    elif not check:
        print(made, end="")
    return 0
