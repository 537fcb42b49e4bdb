"""The tables and pictures of README and docs show what is stored in bench/results."""

import csv
import dataclasses
import re
import runpy
import sys

import pytest

import group_norm
import pages
import pictures
from harness import images, page_part
from pages import group_norms
from support.variant import ROOT

PARTS = [part for parts in pages.parts().values() for part in parts]
for_parts = pytest.mark.parametrize("part", PARTS, ids=lambda part: part.name)


@for_parts
def test_stored_figures_are_in_the_page(part):
    assert part.put(check=True) == 0


@for_parts
def test_a_part_is_written(part, tmp_path):
    page = tmp_path / "page.md"
    page.write_text("before\n{}{}after\n".format(*part.marks))
    part = dataclasses.replace(part, page=page)
    assert part.put(check=True) == 1
    assert part.put(write=True) == 0
    assert part.put(check=True) == 0
    text = page.read_text()
    assert text.startswith("before\n") and text.endswith("after\n")


def main(module, monkeypatch, *arguments):
    """Runs a script with arguments."""
    monkeypatch.setattr(sys, "argv", ["bench", module.__name__, *arguments])
    return module.main()


def test_parts_are_printed_and_checked_together(monkeypatch, capsys):
    assert main(pages, monkeypatch, "--check") == 0
    assert capsys.readouterr().out == ""
    assert main(pages, monkeypatch, "vae", "projections") == 0
    texts = [text for name in ("vae", "projections") for text in made(name)]
    assert capsys.readouterr().out == "".join(texts)
    with pytest.raises(SystemExit):
        main(pages, monkeypatch, "no-such")
    assert "no page no-such" in capsys.readouterr().err


def made(name, **replaced):
    """The texts of a module's parts."""
    parts = [dataclasses.replace(part, **replaced) for part in pages.parts()[name]]
    return [part.made() for part in parts]


def test_cells_on_the_cpu():
    (text,) = made("cpu")
    (line,) = (line for line in text.splitlines() if line.startswith("| layer | float16 |"))
    assert "" not in [cell.strip() for cell in line.split("|")[1:-1]]
    (line,) = (line for line in text.splitlines() if line.startswith("| rms | float16 |"))
    assert [cell.strip() for cell in line.split("|")[1:-1]].count("") == 1  # torch's


@pytest.mark.slow
def test_group_norms_are_measured_and_shown(monkeypatch, tmp_path):
    file = tmp_path / "figures.csv"
    command = f"bench group_norm --device cpu --only 1x3x64 --csv {file}"
    monkeypatch.setattr(sys, "argv", command.split())
    assert group_norm.SUITE.main() == 0
    part = dataclasses.replace(group_norms.PARTS[0], results=(file.with_suffix(""),))
    text = part.made()
    rows = [line for line in text.splitlines() if line.startswith("| ")]
    lines = [line for line in rows if "1×3×64" in line]
    assert [line.split(" | ")[0] for line in lines] == [
        f"| {group_norms.NAMES[op]}" for op in images.OPS
    ]
    ratios = [cell for line in lines for cell in line.split(" | ")[4:6]]
    assert all(re.fullmatch(r"\d+\.\d\d", ratio) for ratio in ratios), ratios


def test_a_page_has_few_figures():
    """The rest is in bench/results; on a page are ten rows, or a little more."""
    for part in PARTS:
        rows = [line for line in part.made().splitlines() if line.startswith("| ")]
        assert len(rows) <= 24 if part.page == "docs/ladders.md" else 15, part.name


def test_each_table_says_what_was_measured():
    for part in PARTS:
        assert re.search(r"\b\d+\.\d+\.\d+ \([0-9a-f]{7}", part.made()), part.name


@pytest.mark.parametrize("name", pictures.PICTURES)
def test_pictures_show_what_is_stored(name, monkeypatch):
    assert main(pictures, monkeypatch, "--check", name) == 0
    monkeypatch.setitem(
        pictures.PICTURES, name, pictures.PICTURES[name]._replace(found=lambda: {"other": 1})
    )
    assert main(pictures, monkeypatch, "--check", name) == 1


def test_pictures_are_drawn(monkeypatch, tmp_path):
    monkeypatch.setattr(pictures, "path_of", lambda name, theme: tmp_path / f"{name}_{theme}.svg")
    names = ("speed", "cpu", "launches")
    assert main(pictures, monkeypatch, *names) == 0
    assert main(pictures, monkeypatch, "--check", *names) == 0
    for theme, (text, *_) in pictures.THEMES.items():
        assert all(text in (tmp_path / f"{name}_{theme}.svg").read_text() for name in names)


def test_every_picture_is_in_a_page_in_both_themes():
    pages_of = [ROOT / "README.md", *(ROOT / "docs").rglob("*.md")]
    text = "".join(page.read_text() for page in pages_of)
    for name in pictures.PICTURES:
        for theme in pictures.THEMES:
            assert f"pictures/{name}_{theme}.svg" in text
            assert pictures.path_of(name, theme).exists()


def test_packages_that_were_tried_are_in_the_page():
    tool = runpy.run_path(str(ROOT / "tools" / "compatibility" / "__main__.py"))
    with tool["TRIED"].open(newline="") as file:
        made = tool["shown"](list(csv.DictReader(file)))
    assert (
        page_part.put(made, tool["PAGE"], tool["MARKS"], "tried.csv", write=False, check=True) == 0
    )
