"""A part of a page that is generated from stored measurements: print, check or write it."""

from __future__ import annotations

import contextlib
import csv
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
RESULTS = ROOT / "bench" / "results"
_READ: list[list[str]] = []  # the names of the files that a part reads
Rows = list[dict[str, str]]
Cell = Callable[[Rows], str]


def matching(rows: Rows, /, **values: str) -> Rows:
    return [row for row in rows if all(row[name] == value for name, value in values.items())]


def one(rows: Rows, /, **values: str) -> dict[str, str]:
    (row,) = matching(rows, **values)
    return row


def each(rows: Rows, *names: str) -> list:
    """The distinct values of these columns: strings for one column, tuples for several."""
    found = dict.fromkeys(tuple(row[name] for name in names) for row in rows)
    return [values[0] if len(names) == 1 else values for values in found]


def number(column: str, form: str, factor: float = 1.0, /, **values: str) -> Cell:
    """A cell with a number of the one row that has these values; empty if there is none."""

    def cell(rows: Rows) -> str:
        found = matching(rows, **values)
        return format(factor * float(found[0][column]), form) if found and found[0][column] else ""

    return cell


def around(column: str, form: str, /, **values: str) -> Cell:
    """A cell with a median, and with the ends around it in parentheses."""
    parts = [number(column + end, form, **values) for end in ("", "_lower", "_upper")]

    def cell(rows: Rows) -> str:
        figures = [part(rows) for part in parts]
        return "{} ({} to {})".format(*figures) if all(figures) else figures[0]

    return cell


def ends(rows: Rows) -> str:
    """What is in parentheses: the files that were measured first have quartiles."""
    return "intervals" if rows[0].get("interval") else "quartiles"


def table(
    rows: Rows, keys: Mapping[str, str | Cell], cells: Mapping[str, Cell] | list[tuple[str, Cell]]
) -> str:
    """A Markdown table with a line for each of the distinct values of some columns.

    Args:
        keys: By heading, the column, or a cell of it, whose name is the heading then.
        cells: By heading, what is said of the rows that have the same values; pairs if headings
            are alike.
    """
    cells = list(cells.items()) if isinstance(cells, Mapping) else cells
    names = [key if isinstance(key, str) else heading for heading, key in keys.items()]
    groups: dict[tuple, Rows] = {}
    for row in rows:
        groups.setdefault(tuple(row[name] for name in names), []).append(row)
    lines = [
        [key(of) if callable(key) else of[0][key] for key in keys.values()]
        + [cell(of) for _, cell in cells]
        for of in groups.values()
    ]
    return markdown([*keys, *(heading for heading, _ in cells)], lines)


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
    dated: bool = True  # ends with a line that says which commits were measured

    @property
    def marks(self) -> tuple[str, str]:
        """The lines before and after the part."""
        return (
            f"<!-- {self.name}: python bench pages --write -->\n",
            f"<!-- end of {self.name} -->\n",
        )

    def made(self) -> str:
        with reading() as names:
            text = self.text(*map(stored, self.results))
        said = measured_with(names) if self.dated else ""
        return f"{text}\nMeasured with mlx_norms {said}.\n" if said else text

    def put(self, *, write: bool = False, check: bool = False) -> int:
        """As :func:`put`."""
        return put(
            self.made(), ROOT / self.page, self.marks, "bench/results", write=write, check=check
        )


@contextlib.contextmanager
def reading() -> Iterator[list[str]]:
    """The names of the files that are read meanwhile."""
    _READ.append([])
    try:
        yield _READ[-1]
    finally:
        _READ.pop()


def measured_with(names: Iterable[str]) -> str:
    """The version of mlx_norms of each file, and its commit."""
    with (RESULTS / "stored.csv").open(newline="") as file:
        of = {row["file"]: (row["version"], row["commit"][:7]) for row in csv.DictReader(file)}
    found = {of[path] for name in names if (path := f"bench/results/{name}.csv") in of}
    commits: dict[str, list[str]] = {}
    for version, commit in sorted(found):
        commits.setdefault(version, []).append(commit)
    return "; ".join(f"{version} ({', '.join(those)})" for version, those in commits.items())


def stored(name: str) -> Rows:
    """The rows of a file of bench/results."""
    if _READ:
        _READ[-1].append(str(name))
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
