"""Stored results name their commit and sources, and what is older than these is said."""

import subprocess
import sys

import pytest

import results
from support.variant import ROOT


def test_all_that_is_stored_is_listed():
    """A file that was stored again needs `python tools results --stored FILE`."""
    lines = results.read(ROOT)
    assert results.wrong(ROOT, lines) == []
    assert all(line.commit and line.version and line.sources for line in lines)


@pytest.fixture
def checkout(tmp_path):
    """A checkout with one result of one source, committed; runs git in it."""

    def git(*arguments):
        identity = ["-c", "user.name=a", "-c", "user.email=a@example.org"]
        command = ["git", *identity, *arguments]
        done = subprocess.run(command, cwd=tmp_path, check=True, capture_output=True, text=True)
        return done.stdout.strip()

    files = {"kernel": "1", "bench/results/a.csv": "figures", "pyproject.toml": 'version = "1.0"\n'}
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    results.write(tmp_path, [results.Stored("bench/results/a.csv", "", "", "", "kernel")])
    git("init", "-q")
    git("add", ".")
    git("commit", "-qm", "one")
    return tmp_path, git


def test_what_is_older_than_its_sources_is_named(checkout, capsys):
    root, git = checkout
    assert results.check(root) == 1
    assert results.store(root, "bench/results/a.csv") == 0
    (line,) = results.read(root)
    assert line.commit == git("rev-parse", "--short=10", "HEAD") and line.version == "1.0"
    capsys.readouterr()
    assert results.check(root) == 0 and capsys.readouterr().out == ""

    (root / "kernel").write_text("2")
    assert results.store(root, "bench/results/a.csv") == 1  # of no commit
    git("commit", "-qam", "two")
    assert results.check(root) == 0
    assert "bench/results/a.csv is of" in (said := capsys.readouterr().out)
    assert "in 1 commits since, last in" in said and "two" in said
    assert results.store(root, "bench/results/a.csv") == 0
    assert results.check(root) == 0 and "is of" not in capsys.readouterr().out


def test_what_changed_without_its_line_is_an_error(checkout, capsys):
    root, _ = checkout
    results.store(root, "bench/results/a.csv")
    (root / "bench/results/a.csv").write_text("other figures")
    (root / "bench/results/b.csv").touch()
    assert results.check(root) == 1
    said = capsys.readouterr().out
    assert "a.csv has changed" in said and "b.csv is not listed" in said


def test_a_file_is_of_the_card_that_its_name_says(tmp_path):
    stored = results.Stored("bench/results/h200_a.csv", "", "1", "1.0", "")
    path = tmp_path / stored.file
    path.parent.mkdir(parents=True)
    for device, said in ('"gpu, NVIDIA H200"', []), ('"gpu, NVIDIA H100"', ["NVIDIA H100"]):
        path.write_text(f"us,device\n1,{device}\n")
        found = results.wrong(tmp_path, [results.replace(stored, digest=results.digest(path))])
        assert found == [f"{stored.file} is of gpu, {card}" for card in said]


def test_what_a_page_shows_of_an_older_version(checkout):
    root, _ = checkout
    results.store(root, "bench/results/a.csv")
    assert results.stale(root, {"bench/results/a.csv"}) == []
    (root / "pyproject.toml").write_text('version = "1.1.0"\n')
    (said,) = results.stale(root, {"bench/results/a.csv"})
    assert "is of 1.0, and this is 1.1.0" in said
    assert results.stale(root, set()) == []


def test_what_the_readme_shows_is_known():
    assert {"bench/results/h200_model.csv", "bench/results/cpu_copy.csv"} < results.shown(
        "README.md"
    )


def test_without_history_nothing_is_told(checkout, capsys):
    root, git = checkout
    results.store(root, "bench/results/a.csv")
    lines = [results.replace(line, commit="0123456789") for line in results.read(root)]
    results.write(root, lines)
    assert results.check(root) == results.NOT_RUN
    assert "NOT RUN for 1 of 1" in capsys.readouterr().out


def test_listed(monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["results"])
    assert results.main() == 0
    assert len(capsys.readouterr().out.splitlines()) == len(results.read(ROOT))
