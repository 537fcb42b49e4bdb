"""bench/model.py measures what it says, and the page's tables show it."""

import csv
import sys

import mlx.core as mx
import pytest

import model as of_models
import pages.gains
import pages.models
from harness import llama, models
from mlx_norms._measure.models import logits

pytestmark = pytest.mark.usefixtures("on_the_cpu")

ROWS = (1, 3)


@pytest.fixture
def model():
    mx.random.seed(0)
    return llama.build(llama.TINY, None)[0]


def test_steps_of_several_rows_take_what_follows_each(model):
    prompt, tokens = mx.array([3, 1, 4]), mx.array([1, 5, 9])
    _, cache = models.prefill(model, prompt)
    found = models.step(model, tokens, cache)
    assert [layer.offset for layer in cache] == [6, 6]
    models.trim(cache, 3)
    one_by_one = [models.step(model, tokens[i : i + 1], cache).item() for i in range(3)]
    assert found.tolist() == one_by_one


def test_logits_of_several_rows_are_those_of_each(model):
    model.set_dtype(mx.float32)
    prompt, tokens = mx.array([3, 1, 4]), [1, 5, 9, 2, 6]
    together, alone = (logits(model, prompt, tokens, rows=n)[1] for n in (2, 1))
    assert together.shape == alone.shape == (1, 5, llama.TINY.vocab_size)
    assert mx.allclose(together, alone, atol=1e-5)


@pytest.mark.parametrize("rows", ROWS)
def test_steps_leave_the_cache_as_it_was(model, rows, monkeypatch):
    phase = of_models.Phase(model, mx.array([3, 1, 4]), rows)
    phase.run(4)
    assert [layer.offset for layer in phase._cache] == [3, 3]
    clock = iter([0.0, 3e-3, 10.0, 10.001, 20.0, 20.002])
    monkeypatch.setattr(of_models.time, "thread_time", lambda: next(clock))
    host = of_models.Host(phase.steps, of_models.CONTEXTS["stock"])
    assert host.seconds(3) == pytest.approx(3 * 2e-3)
    assert [layer.offset for layer in phase._cache] == [3, 3]


@pytest.mark.slow
def test_tables_show_what_was_measured(monkeypatch, tmp_path):
    monkeypatch.setattr(of_models.Host, "seconds", lambda self, count: 567e-6 * count)
    monkeypatch.setattr(of_models, "STEPS", 2)
    monkeypatch.setattr(of_models, "PREFILLS", 1)
    monkeypatch.setitem(llama.MODELS, "llama-8B", llama.TINY)
    path = tmp_path / "figures.csv"
    command = "bench model --device cpu --rows 1,3 --prompt 9"
    monkeypatch.setattr(sys, "argv", [*command.split(), "--csv", str(path)])
    assert of_models.SUITE.main() == 0
    with path.open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == len(llama.FORMATS) * 3 * (3 + 2)
    for row in rows:
        assert row["how"] == "wall" or row["us"] == "567" and row["phase"] != "prefill"
        assert row["rows"] == {"prefill": "9", "decode": "1", "decode, 3 rows": "3"}[row["phase"]]
        assert (row["products"] == "") == (row["side"] == "stock")
        assert row["logits"] == "bit-equal"

    traced = [row | {"how": "kernels", "us": "1234", "kernels": "77"} for row in rows[-1:]]
    text = "".join(pages.models.steps(rows + traced))
    lines = [line.split(" | ") for line in text.splitlines() if "| 3 |" in line]
    assert [line[2] for line in lines[:3]] == ["stock", "patched", "projections"]
    assert lines[0][5:] == ["567", "", " |"]
    assert lines[-1][5:] == ["567", "1234", "77 |"]
    ratios = [line.split(" | ")[:2] for line in pages.models.of_models(rows, []).splitlines()[2:5]]
    assert ratios == [
        ["| bf16", "prefill"],
        ["| bf16", "decode"],
        ["| bf16", "decode, 3 rows"],
    ]
    for row in rows:
        if (row["phase"], row["format"], row["how"]) == ("decode", "4-bit", "wall"):
            steps = [x for x in rows if (x["phase"], x["how"]) == ("decode", "wall")]
            shown = pages.gains.decode(steps, "4-bit", row["side"]) if row["over"] else None
            assert shown is None or shown == pages.gains.factor(float(row["over"]))
