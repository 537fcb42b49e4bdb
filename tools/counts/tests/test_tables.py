"""A page's tables are printed, written, and held against what is measured."""

import pytest

from counts import __main__ as counts

BEGIN = "<!-- counts of rows: python tools counts --write -->\n"
END = "<!-- end of counts of rows -->\n"


@pytest.fixture
def run(tmp_path, monkeypatch):
    file = tmp_path / "page.md"
    file.write_text(f"before\n{BEGIN}| 1 |\n{END}after\n")
    monkeypatch.setattr(counts, "TABLES", {"rows": (file, None)})
    monkeypatch.setattr(counts, "measured", lambda: {"rows": "| 2 |\n"})

    def run(write=False, check=False):
        return counts.put(write=write, check=check), file.read_text()

    return run


def test_another_table_fails_the_check(run, capsys):
    assert run(check=True) == (1, f"before\n{BEGIN}| 1 |\n{END}after\n")
    assert "| 2 |" in capsys.readouterr().out


def test_what_is_written_passes_the_check(run):
    assert run(write=True) == (0, f"before\n{BEGIN}| 2 |\n{END}after\n")
    assert run(check=True)[0] == 0


def test_what_is_printed(run, capsys):
    assert run()[0] == 0
    assert capsys.readouterr().out == "| 2 |\n"
