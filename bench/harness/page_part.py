"""A part of a page that is generated from stored measurements: print, check or write it."""

from __future__ import annotations

import csv
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
RESULTS = ROOT / "bench" / "results"
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


@dataclass(frozen=True)
class Part:
    """A part of a page that shows what is in bench/results.

    Attributes:
        page: The Markdown file, from the repository's root.
        name: What the marks around the part say.
        results: Names of files, without their folder and ending.
        text: Returns the part, given a list of rows per file.
    """

    page: str
    name: str
    results: tuple[str, ...]
    text: Callable[..., str]

    @property
    def marks(self) -> tuple[str, str]:
        """The lines before and after the part."""
        return (
            f"<!-- {self.name}: python bench pages --write -->\n",
            f"<!-- end of {self.name} -->\n",
        )

    def made(self) -> str:
        return self.text(*map(stored, self.results))

    def put(self, *, write: bool = False, check: bool = False) -> int:
        """As :func:`put`."""
        return put(
            self.made(), ROOT / self.page, self.marks, "bench/results", write=write, check=check
        )


def stored(name: str) -> Rows:
    """The rows of a file of bench/results."""
    with (RESULTS / f"{name}.csv").open(newline="") as file:
        return list(csv.DictReader(file))


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
