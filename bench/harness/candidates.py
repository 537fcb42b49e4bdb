"""Calls with each value of a setting of the extension, to see which is the fastest."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from .providers import Calls

BY_PLAN = 0  # the value by which the extension chooses itself


@dataclass(frozen=True)
class _Candidate:
    """A provider of calls that run with a value of a setting."""

    calls: Calls
    set: Callable[[int], None]
    value: int

    def prepare(self, count: int) -> list:
        return self.calls.prepare(count)

    def finish(self, pending: list, *, alone: bool = False) -> None:
        self.set(self.value)
        self.calls.finish(pending, alone=alone)
        self.set(BY_PLAN)


def candidates(
    calls: Calls, set: Callable[[int], None], values: Iterable[int]
) -> dict[int, _Candidate]:
    """Providers by value, first the extension's own choice."""
    return {value: _Candidate(calls, set, value) for value in (BY_PLAN, *values)}


def marked(text: str, is_close: bool) -> str:
    """The text of a figure, marked if it is about the best."""
    return f"[bold green]{text}*[/bold green]" if is_close else text
