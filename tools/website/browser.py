"""For readers with a phone: looks at the built site in Chromium; found formulas that are too wide.

    python tools website.browser DIR [--screenshots DIR]

Each page is opened at 390 and at 1280 pixels, light and dark, with all that is folded unfolded; one
that is wider than the window, or whose script fails, is an error. Needs playwright, and Chromium on
PATH (Debian's `chromium`) or Chrome.
"""

import argparse
import contextlib
import functools
import shutil
import sys
import threading
from collections.abc import Iterator
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from playwright.sync_api import Page, sync_playwright

WINDOWS = {"narrow": (390, 844), "wide": (1280, 900)}
THEMES = ("light", "dark")
# The pages of which there are screenshots: one of each kind.
SHOWN = (
    "index",
    "README",
    "docs/start",
    "docs/gallery",
    "docs/troubleshooting",
    "docs/performance/models_on_cuda",
    "docs/performance",
    "docs/performance/norms_on_cuda",
    "docs/performance/group_norms_on_cuda",
    "docs/how_it_works",
    "docs/patching",
    "reference/ops",
    "reference/rms_norm",
    "reference/patching",
    "kernels/README",
    "CHANGELOG",
)
UNFOLD = "document.querySelectorAll('details').forEach(each => each.open = true)"
# How much wider than the window the page is, and what sticks out of it without a scroll of its own.
WIDTH = """() => {
  const width = document.documentElement.clientWidth;
  const scrolls = each => {
    for (let at = each.parentElement; at; at = at.parentElement)
      if (['auto', 'scroll'].includes(getComputedStyle(at).overflowX)) return true;
    return false;
  };
  const out = [...document.querySelectorAll('article *')].filter(each =>
    each.getBoundingClientRect().right > width + 1 && !scrolls(each));
  return [document.documentElement.scrollWidth - width,
          out.slice(0, 3).map(each => each.tagName + ': ' + each.textContent.slice(0, 60))];
}"""
TOO_WIDE = "data:text/html,<article><p style='width: 2000px'>a page that is too wide</article>"
# The site's own search, by the page that its index gives.
SEARCHED = {"adaLN": "docs/gallery.html", "norm_add_norm": "reference/norm_add_norm.html"}


def too_wide(page: Page, url: str) -> str | None:
    page.goto(url)
    page.evaluate(UNFOLD)
    over, out = page.evaluate(WIDTH)
    return f"{url} is {over} pixels too wide: {out}" if over > 0 or out else None


class Quiet(SimpleHTTPRequestHandler):
    def log_message(self, *given):
        pass


@contextlib.contextmanager
def served(site: Path) -> Iterator[str]:
    """The address of a server of a folder: the search fetches what it shows."""
    handler = functools.partial(Quiet, directory=site)
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


def lacking(page: Page, address: str) -> list[str]:
    """What the search does not find."""
    missed = []
    for words, wanted in SEARCHED.items():
        page.goto(f"{address}/search.html?q={words}")
        page.wait_for_selector("#search-results li", timeout=10000)
        page.wait_for_load_state("networkidle")
        found = page.eval_on_selector_all("#search-results li a", "all => all.map(a => a.href)")
        if not any(wanted in link for link in found):
            missed.append(f"the search for {words} gives {found}, not {wanted}")
    return missed


def look(site: Path, screenshots: Path | None) -> list[str]:
    """Opens all pages; returns what is wrong with them."""
    program = shutil.which("chromium") or shutil.which("google-chrome")
    wrong = []
    with sync_playwright() as playwright, served(site) as address:
        browser = playwright.chromium.launch(executable_path=program, args=["--no-sandbox"])
        for window, (width, height) in WINDOWS.items():
            for theme in THEMES:
                page = browser.new_page(
                    viewport={"width": width, "height": height}, color_scheme=theme
                )
                assert too_wide(page, TOO_WIDE), "the gauge sees nothing"
                page.on("pageerror", lambda error: wrong.append(f"{page.url}: {error}"))
                for path in sorted(site.rglob("*.html")):
                    # Widths do not depend on the theme.
                    if theme == THEMES[0]:
                        wrong += filter(
                            None, [too_wide(page, f"{address}/{path.relative_to(site)}")]
                        )
                for name in SHOWN if screenshots else ():
                    page.goto(f"{address}/{name}.html")
                    file = f"{name.replace('/', '_')}_{window}_{theme}.png"
                    page.screenshot(path=screenshots / file)
                if theme == THEMES[0]:
                    wrong += lacking(page, address)
                page.close()
        browser.close()
    return wrong


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("site", type=Path)
    parser.add_argument("--screenshots", type=Path, help="where they go")
    args = parser.parse_args()
    if args.screenshots:
        args.screenshots.mkdir(parents=True, exist_ok=True)
    wrong = look(args.site.resolve(), args.screenshots)
    count = len([*args.site.rglob("*.html")])
    print(*wrong, f"{count} pages, {len(wrong)} of them wrong.", sep="\n")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
