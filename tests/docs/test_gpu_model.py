"""bench/gpu_model.py measures what it says, and the page's tables show it."""

import contextlib
import csv
import os
import sys

import mlx.core as mx
import pytest

import gpu_model
import pages.gains
import pages.models
from harness import cupti, llama, models, step_costs
from mlx_norms._measure.models import logits

ROWS = (1, 3)


@pytest.fixture(autouse=True)
def on_the_cpu():
    device = mx.default_device()
    mx.set_default_device(mx.cpu)
    yield
    mx.set_default_device(device)


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
    token, cache = models.prefill(model, mx.array([3, 1, 4]))
    tokens = mx.repeat(token, rows)
    models.decode(model, tokens, cache, 4)
    assert [layer.offset for layer in cache] == [3, 3]
    clock = iter([0.0, 3e-3, 10.0, 10.001, 20.0, 20.002])
    monkeypatch.setattr(step_costs.time, "thread_time", lambda: next(clock))
    host = step_costs.HostTime(model, tokens, cache)
    assert host.seconds(3) == pytest.approx(3 * 2e-3)
    assert [layer.offset for layer in cache] == [3, 3]


def test_kernels_of_a_step(monkeypatch):
    """By a trace that sees no projections of three rows."""
    calls = []

    class Trace:
        def __enter__(self):
            self.activity = {}
            return self

        def __exit__(self, *error):
            pass

        @staticmethod
        def available():
            return True

        @contextlib.contextmanager
        def range(self, name):
            calls.clear()
            yield
            if name != "3 projections":
                self.activity[name] = cupti.Activity(1e-3 * len(calls), 10 * len(calls))

    step = models.step
    monkeypatch.setattr(models, "step", lambda *given: calls.append(given) or step(*given))
    monkeypatch.setattr(step_costs, "Trace", Trace)
    found = step_costs._device_times(True, llama.TINY, 4, 5, ROWS, 6)
    sides = [(n, side) for n in ROWS for side in ("stock", "patched", "projections")]
    assert list(found) == sides[:-1]
    assert all(each == step_costs.DeviceTime(pytest.approx(1e-3), 10) for each in found.values())


def test_a_process_that_dies_leaves_no_kernels(monkeypatch):
    class Executor(step_costs.ProcessPoolExecutor):
        def submit(self, function, *given):
            return super().submit(os._exit, 1)

    monkeypatch.setattr(step_costs, "ProcessPoolExecutor", Executor)
    with pytest.warns(UserWarning, match="no kernels' times"):
        assert step_costs.device_times(llama.TINY, None, 5, ROWS, 2) == {}


def test_there_are_no_kernels_without_a_gpu():
    assert step_costs.device_times(llama.TINY, None, 5, ROWS, 2) == {}


@pytest.mark.slow
@pytest.mark.parametrize("traced", [False, True])
def test_tables_show_what_was_measured(traced, monkeypatch, tmp_path):
    key = ROWS[1], "projections"
    times = {key: step_costs.DeviceTime(1234e-6, 77.0)} if traced else {}
    monkeypatch.setattr(step_costs, "device_times", lambda *given: times)
    monkeypatch.setattr(step_costs.HostTime, "seconds", lambda self, count: 567e-6 * count)
    path = tmp_path / "figures.csv"
    command = "bench gpu_model --device cpu --rows 1,3 --rounds 1 --steps 2 --prefills 1 --prompt 9"
    monkeypatch.setattr(sys, "argv", [*command.split(), "--csv", str(path)])
    gpu_model.main()
    with path.open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == len(llama.FORMATS) * 3 * 3
    for row in rows:
        steps = row["phase"] != "prefill"
        assert row["host_us"] == ("567" if steps else "")
        rate = float(row["tokens_a_second"]) * float(row["ms"]) / 1e3
        assert rate == pytest.approx(
            {"prefill": 9, "decode": 1, "decode, 3 rows": 3}[row["phase"]], 1e-3
        )
        assert (row["products"] == "") == (row["side"] == "stock")

    text = "".join(pages.models.step_text(rows))
    lines = [line.split(" | ") for line in text.splitlines() if "| 3 |" in line]
    assert [line[2] for line in lines[:3]] == ["stock", "patched", "projections"]
    assert lines[0][5:] == ["567", "", " |"]
    assert lines[2][5:] == (["567", "1234", "77 |"] if traced else ["567", "", " |"])
    ratios = list(pages.models.model_lines(rows))
    assert [line[:2] for line in ratios[:3]] == [
        ["bf16", "prefill"],
        ["bf16", "decode"],
        ["bf16", "decode, 3 rows"],
    ]
    for row in rows:
        if (row["phase"], row["format"]) == ("decode", "4-bit"):
            steps = [other for other in rows if other["phase"] == "decode"]
            shown = pages.gains.decode(steps, "4-bit", row["side"])
            assert shown == pages.gains.factor(float(row["stock_over_side"]))
