"""The bench command on the software Metal device."""

import csv

import pytest

from command.cli import main
from hostmetal.build import for_tests

pytestmark = [pytest.mark.instrument, pytest.mark.build]


def run(capsys, *arguments):
    assert main([*arguments, "--backend", "metal-sim"]) == 0
    return capsys.readouterr().out


def test_norms_and_rungs(tmp_path, capsys):
    for_tests()
    file = tmp_path / "counts.csv"
    shapes = ["--rows", "8", "--lengths", "64", "--sizes", "16", "--csv", str(file)]
    output = run(capsys, "ladder", *shapes)
    assert "is a bound and no measurement" in output
    with open(file, newline="") as lines:
        rows = list(csv.DictReader(lines))
    found = {}
    for row in rows:
        each = found.setdefault((row["op"], row["provider"]), {})
        each[row["array"]] = float(row["bytes_each"])
    assert found["layer", "naive"] == {"x": 12, "weight": 4, "bias": 4, "y": 4}
    assert sum(found["layer", "ours"].values()) == 16
    assert found["sgemm", "naive"]["a"] == found["sgemm", "naive"]["b"] == 4
    least = {(r["op"], r["provider"]): r["least_us_M1_Max"] for r in rows}
    compulsory = 2 * 4 * 8 * 64 + 2 * 4 * 64
    assert float(least["layer", "ours"]) == pytest.approx(compulsory / 400e9 * 1e6)
    assert least["layer", "naive"] == least["sgemm", "naive"] == ""
    assert rows[0]["device"] == "metal-sim"


def test_gradients_and_rows_read_twice(capsys):
    for_tests()
    options = ["--rows", "2", "--ops", "rms"]
    output = run(capsys, "backward", *options, "--lengths", "64")
    assert "≥ µs" in output and "cotangent 4" in output
    output = run(capsys, "norm", *options, "--lengths", "20000")
    assert "x 8" in output and "≥" not in output
