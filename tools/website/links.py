"""The links of the built site: those within it must lead somewhere, the others are listed.

    python tools website.links DIR [--external]

`--external` asks for the others, too; what has no answer from here is said to be unchecked.
"""

import sys
import urllib.error
import urllib.request
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urldefrag


class Page(HTMLParser):
    """The links and anchors of a page."""

    def __init__(self, text: str):
        super().__init__()
        self.links: list[str] = []
        self.anchors: set[str] = set()
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        given = dict(attributes)
        self.links += [given[name] for name in ("href", "src") if given.get(name)]
        self.anchors |= {given[name] for name in ("id", "name") if given.get(name)}


def found(site: Path) -> tuple[list[str], set[str]]:
    """The links within a site that lead nowhere, and those to elsewhere."""
    pages = {path: Page(path.read_text()) for path in sorted(site.rglob("*.html"))}
    broken, elsewhere = [], set()
    for path, page in pages.items():
        for link in page.links:
            if "://" in link or link.startswith(("mailto:", "data:")):
                elsewhere.add(link)
                continue
            to, anchor = urldefrag(link)
            target = (path.parent / unquote(to.partition("?")[0])).resolve() if to else path
            target = target / "index.html" if target.is_dir() else target
            known = target in pages and unquote(anchor) in pages[target].anchors
            if not target.exists() or (anchor and not known):
                broken.append(f"{path.relative_to(site)} links to {link}")
    return broken, elsewhere


def answer(link: str) -> str:
    """What is heard of a link elsewhere."""
    request = urllib.request.Request(link, headers={"User-Agent": "Mozilla/5.0"})
    try:
        with urllib.request.urlopen(request, timeout=20) as reply:
            return str(reply.status)
    except urllib.error.HTTPError as error:
        return str(error.code)
    except OSError as error:
        return f"unchecked: {error}"


def report(site: Path, external: bool = False) -> int:
    """Prints both kinds; returns 1 if a link is broken."""
    broken, elsewhere = found(site.resolve())
    answers = {link: answer(link) if external else "not asked" for link in sorted(elsewhere)}
    for link, heard in answers.items():
        print(f"{heard:12} {link}")
    print(*broken, f"{len(broken)} links are broken, {len(elsewhere)} lead elsewhere.", sep="\n")
    return 1 if broken or any(heard.startswith("4") for heard in answers.values()) else 0


if __name__ == "__main__":
    sys.exit(report(Path(sys.argv[1]), "--external" in sys.argv))
