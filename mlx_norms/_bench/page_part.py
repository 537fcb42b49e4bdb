"""A part of a page that is generated from stored measurements: prints, checks or writes it."""

from __future__ import annotations

import argparse
import csv
from collections.abc import Callable, Iterable
from pathlib import Path


def markdown(lines: Iterable[Iterable[str]]) -> str:
    """A table of these lines of cells, of which the second is dashes."""
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
        description: what the script is for.
        page: the Markdown file that has the part.
        marks: the lines that stand before and after it.
        results: CSV files, which have to be there.
        text: gives the part, from a list of rows for each file.

    Returns:
        The exit status: 1 if the part was to be checked and the page has another.
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
    made = text(*rows)
    begin, end = marks
    before, rest = page.read_text().split(begin)
    kept, after = rest.split(end)
    if args.write:
        page.write_text(before + begin + made + end + after)
    elif args.check and kept != made:
        names = " and ".join(path.name for path in results)
        print(f"{page.name} does not say what {names} gives:\n{made}")
        return 1
    elif not args.check:
        print(made, end="")
    return 0
