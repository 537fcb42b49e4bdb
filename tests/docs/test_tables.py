"""The tables of README and docs, and the README's plot, show what is stored in bench/results."""

import importlib
import re
import sys
from pathlib import Path

import pytest

BENCH = Path(__file__).parents[2] / "bench"
TABLES = ("gains", "gpu_tables", "gpu_model_tables", "cpu_tables", "ladder_tables")
TABLES += ("projection_table", "quantized_table", "chains_table", "group_norm_table", "vae_table")
TABLES += ("group_norm_cpu_table",)
BESIDE = ("gallery",)  # whose figures stand in several places of a page


@pytest.fixture
def script(monkeypatch):
    """Imports a script and gives its main as a function of its arguments, with names set in it."""
    monkeypatch.syspath_prepend(BENCH)

    def load(name):
        module = importlib.import_module(name)

        def main(*arguments, **names):
            for attribute, value in names.items():
                monkeypatch.setattr(module, attribute, value)
            monkeypatch.setattr(sys, "argv", [f"{name}.py", *arguments])
            return module.main()

        return module, main

    return load


@pytest.mark.parametrize("name", TABLES + BESIDE)
def test_stored_figures_are_in_the_page(name, script):
    _, main = script(name)
    assert main("--check") == 0


@pytest.mark.parametrize("name", TABLES)
def test_table_is_written(name, script, tmp_path):
    module, main = script(name)
    page = tmp_path / "page.md"
    page.write_text(f"before\n{module.BEGIN}{module.END}after\n")
    assert main("--check", PAGE=page) == 1
    assert main("--write") == 0
    assert main("--check") == 0
    text = page.read_text()
    assert text.startswith("before\n") and text.endswith("after\n")


def test_gains_are_written(script, tmp_path):
    module, main = script("gallery")
    page = tmp_path / "page.md"
    names = [name for name, _ in module.gains()]
    page.write_text("".join("".join(module.marks(name)) for name in names))
    assert main("--check", PAGE=page) == 1
    assert main("--write") == 0
    assert main("--check") == 0
    assert page.read_text().count("**Gain:**") == len(names)


def test_cells_on_the_cpu(script, tmp_path):
    module, main = script("cpu_tables")
    page = tmp_path / "page.md"
    page.write_text(module.BEGIN + module.END)
    main("--write", PAGE=page)
    text = page.read_text()
    (line,) = (line for line in text.splitlines() if line.startswith("| layer | float16 |"))
    assert "" not in [cell.strip() for cell in line.split("|")[1:-1]]
    (line,) = (line for line in text.splitlines() if line.startswith("| rms | float16 |"))
    assert [cell.strip() for cell in line.split("|")[1:-1]].count("") == 2  # torch's


def test_figures_must_be_there(script, tmp_path, capsys):
    _, main = script("cpu_tables")
    with pytest.raises(SystemExit):
        main("--check", RESULTS=tmp_path / "none.csv")
    assert "there is no" in capsys.readouterr().err


@pytest.mark.slow
def test_group_norms_are_measured_and_shown(script, tmp_path):
    file, page = tmp_path / "figures.csv", tmp_path / "page.md"
    _, measure = script("group_norm")
    command = "--device cpu --rounds 1 --ops group,batch_inference --shapes 1x3x64 --csv"
    assert measure(*command.split(), str(file)) == 0
    module, main = script("group_norm_table")
    page.write_text(module.BEGIN + module.END)
    assert main("--write", PAGE=page, RESULTS=file) == 0
    lines = [line for line in page.read_text().splitlines() if "1×3×64" in line]
    assert [line.split(" | ")[0] for line in lines] == [
        "| `group_norm`",
        "| `batch_norm`, inference",
    ]
    ratios = [cell for line in lines for cell in line.split(" | ")[4:6]]
    assert all(re.fullmatch(r"\d+\.\d\d", ratio) for ratio in ratios), ratios


def test_plot_shows_what_is_stored(script, tmp_path):
    module, main = script("length_plot")
    assert main("--check") == 0
    lines = module.RESULTS.read_text().splitlines()
    other = tmp_path / "h200_lengths.csv"
    other.write_text("\n".join(line for line in lines if not line.startswith("lengths,layer,")))
    assert main("--check", RESULTS=other) == 1


def test_plot_is_drawn(script, monkeypatch, tmp_path):
    module, main = script("length_plot")
    monkeypatch.setattr(module, "path_of", lambda theme: tmp_path / f"{theme}.svg")
    assert main() == 0 and main("--check") == 0
    for theme, (text, *_) in module.THEMES.items():
        assert text in (tmp_path / f"{theme}.svg").read_text()
