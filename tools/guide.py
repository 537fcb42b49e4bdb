"""For readers of kernels/README.md: applies its example to a checkout; finds where it does not fit.

    python tools guide DIRECTORY

In the guide, a line before a block of code says what to do with it:

    `csrc/scale/scale.h`, new:
    `csrc/sources.cmake`, changed:

The block of a changed file has lines of the file, each after a space, or after a minus sign if it
is removed, followed by the lines that are added after them, each after a plus sign.
"""

import re
import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent
GUIDE = ROOT / "kernels" / "README.md"
BLOCK = re.compile(r"^`([^`\n]+)`, (new|changed):\n```\w*\n(.*?)^```$", re.M | re.S)


class CannotApply(Exception):
    """The guide does not match the checkout; the text says where."""


def apply(root: Path) -> list[str]:
    """Applies kernels/README.md to a checkout.

    Returns:
        The paths of the files written.

    Raises:
        CannotApply: If a new file already exists, or a line that a block expects does not occur
            exactly once.
    """
    written = []
    for path, what, text in BLOCK.findall(GUIDE.read_text()):
        file = root / path
        if what == "changed":
            before = file.read_text().splitlines() if file.exists() else []
            text = _changed(path, before, text)
        elif file.exists():
            raise CannotApply(f"{path} is new in the guide, and the checkout has it")
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
        written.append(path)
    return written


def _changed(path: str, lines: list[str], block: str) -> str:
    at = 0  # where the next added line goes
    for line in block.splitlines():
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
                f"{path} has the line `{rest.strip()}`, where the guide changes it, "
                f"{lines.count(rest)} times, not once"
            )
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    try:
        print(*apply(Path(sys.argv[1])), sep="\n")
    except CannotApply as error:
        sys.exit(str(error))
