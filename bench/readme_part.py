"""A part of the README that is made of stored measurements: prints, checks or writes it."""

from __future__ import annotations

import argparse
import csv
from collections.abc import Callable
from pathlib import Path


def main(
    description: str,
    readme: Path,
    marks: tuple[str, str],
    results: list[Path],
    text: Callable[..., str],
) -> int:
    """Runs a script with its command line.

    Args:
        description: what the script is for.
        readme: the file that has the part.
        marks: the lines that stand before and after it.
        results: CSV files, which have to be there.
        text: gives the part, from a list of rows for each file.

    Returns:
        The exit status: 1 if the README's part was to be checked and is another.
    """
    parser = argparse.ArgumentParser(
        description=description, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    ways = parser.add_mutually_exclusive_group()
    ways.add_argument("--write", action="store_true", help="put it into the README")
    ways.add_argument("--check", action="store_true", help="compare it with the README's")
    args = parser.parse_args()
    rows = []
    for path in results:
        if not path.exists():
            parser.error(f"there is no {path}: measure it first, as above")
        with path.open(newline="") as file:
            rows.append(list(csv.DictReader(file)))
    made = text(*rows)
    begin, end = marks
    before, rest = readme.read_text().split(begin)
    kept, after = rest.split(end)
    if args.write:
        readme.write_text(before + begin + made + end + after)
    elif args.check and kept != made:
        names = " and ".join(path.name for path in results)
        print(f"The README's part is not that of {names}:\n{made}")
        return 1
    elif not args.check:
        print(made, end="")
    return 0
