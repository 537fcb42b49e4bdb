"""Applies the example of kernels/README.md to a checkout.

    python tools guide DIRECTORY

In the guide, a line before a block of code says what to do with it:

    `csrc/scale/scale.h`, new:
    `csrc/sources.cmake`, changed:

The block of a changed file has lines of the file, each after a space, or after a minus sign if it
is removed, followed by the lines that are added after them, each after a plus sign.
"""

import re
import sys
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parent.parent
GUIDE = ROOT / "kernels" / "README.md"
BLOCK = re.compile(
    r"^`(?P<path>[^`\n]+)`, (?P<what>new|changed):\n```\w*\n(?P<text>.*?)^```$", re.M | re.S
)


class CannotApply(Exception):
    """The guide does not match the checkout; the text says where."""


@dataclass(frozen=True)
class Block:
    """A new file of the example, or a change to a file of the checkout.

    Attributes:
        path: The file's path in the checkout.
        is_new: Whether `text` is the whole file.
        text: Whole lines.
    """

    path: str
    is_new: bool
    text: str

    def apply(self, root: Path) -> None:
        """Writes the file.

        Raises:
            CannotApply: If a new file already exists, or a line that the block expects does not
                occur exactly once.
        """
        file = root / self.path
        if not self.is_new:
            text = file.read_text() if file.exists() else ""
            file.write_text(self._changed(text.splitlines()))
        elif file.exists():
            raise CannotApply(f"{self.path} is new in the guide, and the checkout has it")
        else:
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(self.text)

    def _changed(self, lines: list[str]) -> str:
        at = 0  # where the next added line goes
        for line in self.text.splitlines():
            sign, rest = line[:1], line[1:]
            if sign == "+":
                lines.insert(at, rest)
                at += 1
            elif lines.count(rest) == 1:
                at = lines.index(rest)
                if sign == "-":
                    del lines[at]
                else:
                    at += 1
            else:
                raise CannotApply(
                    f"{self.path} has the line `{rest.strip()}`, where the guide changes it, "
                    f"{lines.count(rest)} times, not once"
                )
        return "\n".join(lines) + "\n"


def blocks(text: str) -> list[Block]:
    """The blocks of a guide's text, in order."""
    return [Block(m["path"], m["what"] == "new", m["text"]) for m in BLOCK.finditer(text)]


def apply(root: Path, text: str | None = None) -> list[str]:
    """Applies a guide, by default kernels/README.md, to a checkout.

    Returns:
        The paths of the files written.

    Raises:
        CannotApply: If the guide does not match the checkout.
    """
    found = blocks(GUIDE.read_text() if text is None else text)
    for block in found:
        block.apply(root)
    return [block.path for block in found]


if __name__ == "__main__":
    try:
        print(*apply(Path(sys.argv[1])), sep="\n")
    except CannotApply as error:
        sys.exit(str(error))
