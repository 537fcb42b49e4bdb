"""Parts of a tool's work, to share it: --part K/N is every Nth item, from the Kth on."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import NamedTuple, TypeVar

_Item = TypeVar("_Item")


class Part(NamedTuple):
    """One of `count` parts; the first is 1."""

    number: int
    count: int

    def of(self, items: Sequence[_Item]) -> Sequence[_Item]:
        return items[self.number - 1 :: self.count]


ALL = Part(1, 1)


def part(text: str) -> Part:
    """For argparse: "2/3" is the second of three."""
    number, _, count = text.partition("/")
    if not (number.isdigit() and count.isdigit() and 1 <= int(number) <= int(count)):
        raise argparse.ArgumentTypeError(f"{text} is no part as 2/3 is")
    return Part(int(number), int(count))
