"""Applies the example of kernels/README.md to a checkout.

    python tests/guide.py DIRECTORY

What the guide says before a block of code is what is done with it:

    `csrc/scale.h`, new:
    `csrc/sources.cmake`, after the line `csrc/outputs.cpp`:
"""

import re
import sys
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parent.parent
GUIDE = ROOT / "kernels" / "README.md"
BLOCK = re.compile(
    r"^`(?P<path>[^`\n]+)`, (?:new|after the line `(?P<anchor>[^`\n]+)`):\n\n"
    r"```\w*\n(?P<text>.*?)^```$",
    re.M | re.S,
)


class CannotApply(Exception):
    """The guide does not fit the checkout; the text says where."""


@dataclass(frozen=True)
class Block:
    """A file of the example, or lines of it that go into one of ours.

    Attributes:
        path: Of the file, in the checkout.
        anchor: The line, without indentation, that the text follows. None: the file is new.
        text: Whole lines.
    """

    path: str
    anchor: str | None
    text: str

    def apply(self, root: Path) -> None:
        """Writes the block's text to its place.

        Raises:
            CannotApply: If a new file is there already, or the anchor is not there just once.
        """
        file = root / self.path
        if self.anchor is None:
            if file.exists():
                raise CannotApply(f"{self.path} is new in the guide, and the checkout has it")
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(self.text)
            return
        lines = file.read_text().splitlines(keepends=True) if file.exists() else []
        found = [i for i, line in enumerate(lines) if line.strip() == self.anchor]
        if len(found) != 1:
            raise CannotApply(
                f"{self.path} has the line `{self.anchor}`, which the guide inserts after, "
                f"{len(found)} times, not once"
            )
        lines.insert(found[0] + 1, self.text)
        file.write_text("".join(lines))


def blocks(text: str) -> list[Block]:
    """The blocks of a guide's text, in order."""
    return [Block(m["path"], m["anchor"], m["text"]) for m in BLOCK.finditer(text)]


def apply(root: Path, text: str | None = None) -> list[str]:
    """Applies a guide, by default kernels/README.md, to a checkout.

    Returns:
        The paths of the files written.

    Raises:
        CannotApply: If it does not fit.
    """
    found = blocks(GUIDE.read_text() if text is None else text)
    for block in found:
        block.apply(root)
    return list(dict.fromkeys(block.path for block in found))


if __name__ == "__main__":
    try:
        print(*apply(Path(sys.argv[1])), sep="\n")
    except CannotApply as error:
        sys.exit(str(error))
