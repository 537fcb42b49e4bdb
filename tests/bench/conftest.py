"""What tests of the benchmarks run on."""

import csv
import dataclasses
import sys

import pytest

from harness import conditions

CACHE = 1 << 16


@pytest.fixture
def small_machine(monkeypatch, on_the_cpu):
    """A machine of little cache, with the CPU alone."""
    monkeypatch.setattr(conditions, "cache_bytes", lambda: CACHE)


@pytest.fixture
def run(monkeypatch, capsys, tmp_path, small_machine):
    """Runs a suite with short samples; its status, what it printed, and the lines of its file."""

    def of(suite, *arguments, **changed):
        file = tmp_path / "figures.csv"
        file.unlink(missing_ok=True)
        monkeypatch.setattr(sys, "argv", ["bench", "suite", *arguments, "--csv", str(file)])
        changed = {"sample_seconds": 1e-6} | changed
        status = dataclasses.replace(suite, **changed).main()
        rows = []
        if file.exists():
            with file.open(newline="") as lines:
                rows = list(csv.DictReader(lines))
        return status, capsys.readouterr(), rows

    return of
