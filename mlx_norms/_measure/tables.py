"""Tables for the terminal."""

from __future__ import annotations

from collections.abc import Iterable

from rich import box
from rich.markup import escape
from rich.table import Table


def table(
    title: str, texts: Iterable[str], numbers: Iterable[str] = (), *, lines: bool = True
) -> Table:
    """An empty table with text columns, then number columns; ``lines`` draws lines between rows."""
    style = {} if lines else {"box": box.SIMPLE_HEAD, "pad_edge": False}
    found = Table(title=escape(title), title_justify="left", **style)
    for heading in texts:
        found.add_column(heading)
    for heading in numbers:
        # Folded, so that a narrow terminal loses no digits.
        found.add_column(heading, justify="right", overflow="fold")
    return found
