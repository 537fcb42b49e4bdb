"""The table of docs/performance.md of the norms on the CPU is what was measured."""

import importlib.util
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[1] / "bench" / "cpu_tables.py"


@pytest.fixture
def status(monkeypatch):
    monkeypatch.syspath_prepend(SCRIPT.parent)
    spec = importlib.util.spec_from_file_location("cpu_tables", SCRIPT)
    tables = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(tables)

    def status(*arguments, **paths):
        for name, path in paths.items():
            monkeypatch.setattr(tables, name, path)
        monkeypatch.setattr(sys, "argv", ["cpu_tables.py", *arguments])
        return tables.main()

    status.markers = f"before\n{tables.BEGIN}{tables.END}after\n"
    return status


def test_stored_figures_are_in_the_page(status):
    assert status("--check") == 0


def test_table_is_written(status, tmp_path):
    page = tmp_path / "performance.md"
    page.write_text(status.markers)
    assert status("--check", PAGE=page) == 1
    assert status("--write") == 0
    assert status("--check") == 0
    text = page.read_text()
    assert text.startswith("before\n") and text.endswith("after\n")
    (line,) = (line for line in text.splitlines() if line.startswith("| layer | float16 |"))
    assert "" not in [cell.strip() for cell in line.split("|")[1:-1]]
    (line,) = (line for line in text.splitlines() if line.startswith("| rms | float16 |"))
    assert [cell.strip() for cell in line.split("|")[1:-1]].count("") == 2  # torch's


def test_figures_must_be_there(status, tmp_path, capsys):
    with pytest.raises(SystemExit):
        status("--check", RESULTS=tmp_path / "none.csv")
    assert "there is no" in capsys.readouterr().err
