"""bench/logits.py measures what it says, and the README's table shows it."""

import csv
import sys

import mlx.core as mx
import pytest

import logits
from pages import changes


@pytest.fixture(autouse=True)
def device_is_put_back(monkeypatch):
    monkeypatch.setenv("MLX_ENABLE_TF32", "0")
    before = mx.default_device()
    yield
    mx.set_default_device(before)


def measured(monkeypatch, file, *arguments):
    command = ["bench", "logits", "--tiny", "--seeds", "1", "--device", "cpu", "--csv", str(file)]
    monkeypatch.setattr(sys, "argv", [*command, *arguments])
    assert logits.main() == 0
    with file.open(newline="") as lines:
        return list(csv.DictReader(lines))


def test_a_family(monkeypatch, tmp_path, capsys):
    rows = measured(monkeypatch, tmp_path / "a.csv", "qwen3", "--layers", "2")
    assert [(row["side"], row["measure"]) for row in rows] == [
        (side, name) for side in logits.SIDES for name in logits.MEASURES
    ]
    found = {(row["side"], row["measure"]): float(row["median"]) for row in rows}
    assert found["stock", "largest"] == found["stock", "other token"] == 0
    assert all(1e-4 < found[side, "from float32"] < 0.1 for side in logits.SIDES)
    assert {row["layers"] for row in rows} == {"2"}
    (line,) = changes.of_logits(rows)
    assert line[0] == "qwen3, 128 wide" and line[-1].endswith("%")


def test_what_there_is_not(monkeypatch, tmp_path, capsys):
    with pytest.raises(SystemExit):
        measured(monkeypatch, tmp_path / "a.csv", "no-such")
    assert "there is no no-such" in capsys.readouterr().err
    with pytest.raises(SystemExit):
        measured(monkeypatch, tmp_path / "a.csv", "--sides", "patched")
