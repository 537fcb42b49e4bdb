"""A table of counts that stands in a page of the documentation."""

from collections.abc import Callable
from pathlib import Path

from harness import page_part


def table(module: str) -> str:
    """A module's table, from a process in which the extension runs on the software device."""
    from hostmetal.build import printed

    return printed("-m", module, "--measure")


def main(
    arguments: list[str],
    module: str,
    measure: Callable[[], str],
    page: Path,
    marks: tuple[str, str],
) -> int:
    """Runs a module whose table stands in a page between two marks."""
    if arguments == ["--measure"]:
        print(measure(), end="")
        return 0
    write, check = arguments == ["--write"], arguments == ["--check"]
    return page_part.put(table(module), page, marks, module, write=write, check=check)
