"""The tables of README and docs, and the README's plot, show what is stored in bench/results."""

import dataclasses
import re
import sys

import pytest

import group_norm
import length_plot
import pages
from harness import images
from pages import group_norms

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
    assert [cell.strip() for cell in line.split("|")[1:-1]].count("") == 2  # torch's


@pytest.mark.slow
def test_group_norms_are_measured_and_shown(monkeypatch, tmp_path):
    file = tmp_path / "figures.csv"
    command = f"bench group_norm --device cpu --only 1x3x64 --csv {file}"
    monkeypatch.setattr(sys, "argv", command.split())
    assert group_norm.SUITE.main() == 0
    part = dataclasses.replace(group_norms.PARTS[0], results=(file.with_suffix(""),))
    text = part.made()
    lines = [line for line in text.splitlines() if "1×3×64" in line]
    assert [line.split(" | ")[0] for line in lines] == [
        f"| {group_norms.NAMES[op]}" for op in images.OPS
    ]
    ratios = [cell for line in lines for cell in line.split(" | ")[4:6]]
    assert all(re.fullmatch(r"\d+\.\d\d", ratio) for ratio in ratios), ratios


def test_plot_shows_what_is_stored(monkeypatch, tmp_path):
    assert main(length_plot, monkeypatch, "--check") == 0
    lines = length_plot.RESULTS.read_text().splitlines()
    other = tmp_path / "h200_lengths.csv"
    other.write_text("\n".join(line for line in lines if not line.startswith("lengths,layer,")))
    monkeypatch.setattr(length_plot, "RESULTS", other)
    assert main(length_plot, monkeypatch, "--check") == 1


def test_plot_is_drawn(monkeypatch, tmp_path):
    monkeypatch.setattr(length_plot, "path_of", lambda theme: tmp_path / f"{theme}.svg")
    assert main(length_plot, monkeypatch) == 0
    assert main(length_plot, monkeypatch, "--check") == 0
    for theme, (text, *_) in length_plot.THEMES.items():
        assert text in (tmp_path / f"{theme}.svg").read_text()
