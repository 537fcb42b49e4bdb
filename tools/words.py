"""For writers of pages: the words of each page; found pages that have grown too long.

    python tools words    prints them, and exits with 1 if a page is over its limit

Code, comments, links' targets and the words of pictures are not counted; tables are. The pages that
a user needs have a limit each, and one together.
"""

import re
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
LIMITS = {
    "README.md": 900,
    "docs/start.md": 500,
    "docs/gallery.md": 1450,
    "docs/patching.md": 900,
    "docs/troubleshooting.md": 800,
}
TOGETHER = 4500
OTHERS = 2000  # of any other page; the changelog has none
UNCOUNTED = re.compile(r"^```.*?^```$|<!--.*?-->|<[a-z/!][^>]*>|\]\([^)]*\)", re.M | re.S)
WORD = re.compile(r"\S*\w\S*")


def count(page: Path) -> int:
    return len(WORD.findall(UNCOUNTED.sub(" ", page.read_text())))


def limit(page: Path) -> int:
    return LIMITS.get(str(page.relative_to(ROOT)), OTHERS)


def main() -> int:
    names = [str(page.relative_to(ROOT)) for page in sorted((ROOT / "docs").rglob("*.md"))]
    over = 0
    for name in dict.fromkeys([*LIMITS, *names]):
        found, most = count(ROOT / name), limit(ROOT / name)
        over += found > most
        print(f"{name:40} {found:5} of {most}{' too long' * (found > most)}")
    together = sum(count(ROOT / name) for name in LIMITS)
    over += together > TOGETHER
    print(f"{'what a user reads, together':40} {together:5} of {TOGETHER}")
    return 1 if over else 0


if __name__ == "__main__":
    sys.exit(main())
