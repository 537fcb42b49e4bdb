"""Splits cases among processes, each of which says in its output which it ran."""

import random
import re
from collections import Counter
from collections.abc import Callable, Iterable

from parts import Part

Cases = Iterable[tuple[str, Callable[[], None]]]

_RAN = re.compile(r"^\d+ of (\d+) cases ran:([ \d]*)$", re.M)


def chosen(total: int, part: Part) -> set[int]:
    """The numbers of a part's cases, shuffled, as slow ones lie at regular distances."""
    order = list(range(total))
    random.Random(0).shuffle(order)
    return set(part.of(order))


def run(cases: Callable[[], Cases], part: Part) -> None:
    """Run a part's cases, and print each one's name before it and their numbers after all.

    A case may only be called before the next one is asked for.
    """
    total = sum(1 for _ in cases())
    ran, mine = [], chosen(total, part)
    for number, (name, call) in enumerate(cases()):
        if number in mine:
            print(name, flush=True)
            try:
                call()
            except Exception as error:
                raise RuntimeError(name) from error
            ran.append(number)
    print(f"{len(ran)} of {total} cases ran:", *ran)


def is_complete(output: str) -> bool:
    """Whether a process ran all of its cases."""
    return _RAN.search(output) is not None


def not_once(outputs: Iterable[str]) -> list[int]:
    """The numbers of the cases that these complete processes did not run exactly once."""
    found = [_RAN.search(output) for output in outputs]
    totals = [int(match[1]) for match in found]
    ran = Counter(int(number) for match in found for number in match[2].split())
    return [number for number in range(max(totals, default=0)) if ran[number] != 1]
