"""README and docs: their examples run, their links lead somewhere, and the front page is short."""

import importlib.util
import re
import shlex
import subprocess
import sys

import pytest

import words
from support.documented import OPS
from support.variant import ROOT, environment

PAGES = [
    *(ROOT / name for name in ("README.md", "CONTRIBUTING.md", "kernels/bounds.md")),
    *(ROOT / "kernels" / "counts.md", *sorted((ROOT / "docs").rglob("*.md"))),
]
BLOCK = re.compile(r"^```(\w*)(?: (\w+))?\n(.*?)^```$", re.M | re.S)
FOLDED = re.compile(r"^<details><summary>[^\n]+</summary>\n\n.*?\n\n</details>$", re.M | re.S)
# What a Python example needs that not every machine has: a word behind "python", and what shows it.
NEEDS = {"network": "mlx_lm.load(", "gpu": "mx.gpu"}
COMMANDS = ("python -m mlx_norms", "python tools/fuzz")  # that run here, without an installation
LONG = ("mlx_norms selftest", "norms.csv")  # test_selftest.py and bench/test_command.py have these
LINK = re.compile(r"\]\(([^)#\s]*)(?:#([^)\s]*))?\)|(?:src|srcset)=\"([^\"]*)\"")
for_pages = pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)


def blocks(page, language):
    return [text for found, _, text in BLOCK.findall(page.read_text()) if found == language]


def examples(*needs):
    """The Python examples with these needs, one by one."""
    for page in PAGES:
        for found in BLOCK.finditer(page.read_text()):
            language, need, script = found.groups(default="")
            line = page.read_text()[: found.start()].count("\n") + 1
            if language == "python" and need in needs:
                yield pytest.param(need, script, id=f"{page.name}:{line}")


@pytest.mark.parametrize("need, script", [*examples("", *NEEDS)])
def test_examples_say_what_they_need(need, script):
    compile(script, "example", "exec")
    assert need == next((name for name, sign in NEEDS.items() if sign in script), "")


@pytest.mark.parametrize("need, script", [*examples("", "network")])
def test_examples(need, script, tmp_path):
    """Each by itself. One needs a GPU and is not run: test_cuda.py has the same."""
    if need == "network" and not importlib.util.find_spec("mlx_lm"):
        pytest.skip("mlx_lm needs Python 3.11")
    file = tmp_path / "example.py"
    file.write_text(script)
    command = [sys.executable, "-m", "support.example", file, *filter(None, [need])]
    env = environment(HF_HUB_OFFLINE="1")
    done = subprocess.run(command, cwd=tmp_path, env=env, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


def commands(page):
    lines = "".join(blocks(page, "sh")).splitlines()
    return [line for line in lines if line.startswith(COMMANDS) and not line.endswith(LONG)]


@pytest.mark.parametrize("command", sorted({c for page in PAGES for c in commands(page)}))
def test_commands(command, tmp_path):
    """A file that a command names relative to the checkout is there."""
    arguments = shlex.split(command)[1:]
    if arguments[0].endswith(".py"):
        arguments[0] = str(ROOT / arguments[0])
    done = subprocess.run(
        [sys.executable, *arguments], cwd=tmp_path, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout


@for_pages
def test_folded_parts_are_rendered(page):
    """GitHub takes them for Markdown between empty lines."""
    text = page.read_text()
    rest, count = FOLDED.subn("", text)
    assert count == text.count("<details>") == text.count("</details>")
    tables = re.findall(r"(?:^\|.*\n)+", rest, re.M)
    assert all(table.count("\n") <= 42 for table in tables), "long tables are folded"


@for_pages
def test_pages_are_short(page):
    """Users' pages have limits of their own, and no other takes more than twelve minutes."""
    assert words.count(page) <= words.limit(page)


def test_users_read_little():
    """All that a user needs, together."""
    assert sum(words.count(ROOT / name) for name in words.LIMITS) <= words.TOGETHER


def test_words_are_printed(capsys, monkeypatch):
    monkeypatch.setattr(sys, "argv", ["words"])
    assert words.main() == 0
    said = capsys.readouterr().out
    assert "README.md" in said and "together" in said


def test_words_that_are_counted(tmp_path):
    page = tmp_path / "page.md"
    text = "# Two words\n\n[a link](to/a/page.md) `and code` | --- | 3.5\n<!-- no comment -->\n"
    page.write_text(text + "```sh\nnot counted\n```\n<img alt='nor this'>\n")
    assert words.count(page) == 7


def test_the_first_screen_answers():
    """What a newcomer asks, each in a line of the README's first screen."""
    lines = (ROOT / "README.md").read_text().splitlines()
    first = lines[: lines.index("## Install")]
    assert len([line for line in first if line and not line.startswith("<!--")]) <= 33
    for answer in (
        "Faster norms for",
        "**Worth it?**",
        "Times as fast as MLX alone",
        "**What changes",
        "**What can break",
        "**How do I turn it off",
        "**What if I upgrade MLX",
    ):
        assert any(answer in line for line in first), answer
    for riddle in ("products that take", "what your model writes", "enough of it", "calls per `mx"):
        assert not any(riddle in line for line in lines), riddle


def slug(heading):
    """A heading's anchor, on GitHub as on the site."""
    return re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")


def anchors(page):
    return {slug(heading) for heading in re.findall(r"^#+ (.*)$", page.read_text(), re.M)}


def linked(page):
    """The Markdown files that a page links to."""
    if page.suffix != ".md":
        return set()
    paths = [path for path, _, _ in LINK.findall(page.read_text()) if path.endswith(".md")]
    return {(page.parent / path).resolve() for path in paths if "://" not in path}


@for_pages
def test_links(page):
    for path, anchor, source in LINK.findall(page.read_text()):
        if (path or source).startswith("https://"):
            continue
        target = page.parent / (path or source) if path or source else page
        assert target.exists(), f"{page.name} links to {path or source}"
        assert not anchor or anchor in anchors(target), f"{page.name} links to {path}#{anchor}"


@for_pages
def test_every_page_is_two_clicks_from_the_front(page):
    front = ROOT / "README.md"
    near = {front, *linked(front)}
    assert page in near.union(*map(linked, near))


def test_what_a_model_writes_is_found_in_two_clicks():
    """From the front to the gallery, whose first table has each section and each op."""
    gallery = ROOT / "docs" / "gallery.md"
    assert gallery in linked(ROOT / "README.md")
    head, *sections = gallery.read_text().split("\n## ")
    assert re.findall(r"\]\(#([^)]*)\)", head) == [slug(text.splitlines()[0]) for text in sections]
    assert sections[0].startswith("adaLN")
    shown = set(re.findall(r"`(\w+)`(?:, | \|$)", head, re.M))
    missing = {*OPS, "quantized_matmul"} - shown
    assert not missing, f"docs/gallery.md's first table lacks {missing}: beside a like op, or anew"
    assert all("**Gain:**" in text for text in sections)
