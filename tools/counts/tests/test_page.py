"""A page's table is printed, written, and held against what is measured."""

import pytest

from counts import page

BEGIN, END = "<!-- a table -->\n", "<!-- its end -->\n"


@pytest.fixture
def run(tmp_path, monkeypatch):
    file = tmp_path / "page.md"
    file.write_text(f"before\n{BEGIN}| 1 |\n{END}after\n")
    monkeypatch.setattr(page, "table", lambda module: "| 2 |\n")

    def run(*arguments):
        status = page.main([*arguments], "counts.norms", lambda: "| 3 |\n", file, (BEGIN, END))
        return status, file.read_text()

    return run


def test_another_table_fails_the_check(run, capsys):
    assert run("--check") == (1, f"before\n{BEGIN}| 1 |\n{END}after\n")
    assert "| 2 |" in capsys.readouterr().out


def test_what_is_written_passes_the_check(run):
    assert run("--write") == (0, f"before\n{BEGIN}| 2 |\n{END}after\n")
    assert run("--check")[0] == 0


def test_what_is_printed(run, capsys):
    assert run()[0] == run("--measure")[0] == 0
    assert capsys.readouterr().out == "| 2 |\n| 3 |\n"
