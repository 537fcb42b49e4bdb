"""``python bench first_call``: what it measures in a process, and the table."""

import os
import sys

import pytest

import first_call
import mlx_norms
from first_call import Times


@pytest.fixture(autouse=True)
def nothing_stays(monkeypatch, on_the_cpu):
    for name in first_call.CACHES:
        monkeypatch.setenv(name, "of this process")
    yield
    mlx_norms.unpatch()


@pytest.mark.parametrize("side", first_call.SIDES)
def test_a_process(side):
    mlx_norms.patch()  # which begins the report anew
    mlx_norms.unpatch()
    its = first_call.measured(side, "cpu")
    assert min(its.prompt, its.step, its.later) > 0 == its.kernels
    assert (its.warm_up > 0) == (side == "warmed up")
    assert mlx_norms.is_patched() == (side != "stock")
    assert (mlx_norms.report().calls > 0) == (side != "stock")


@pytest.mark.slow
def test_a_new_process():
    processes = first_call.in_new_processes("cpu")
    found = [next(processes) for _ in range(2)]
    processes.close()
    assert [each[:2] for each in found] == [("empty", "stock"), ("filled", "stock")]
    assert all(its.prompt > 0 for *_, its in found)


def test_the_table(monkeypatch, capsys):
    folders = []

    def process(_, side, device):
        assert device == "cpu"
        folders.append([os.environ[name] for name in first_call.CACHES])
        return Times(1.25 if side == "warmed up" else 0, 3, 0.25, 0.125, 0.0625)

    class Pool:
        def __init__(self, workers, mp_context):
            pass

        def __enter__(self):
            return self

        def __exit__(self, *_):
            pass

        def submit(self, *arguments):
            took = process(*arguments)
            return type("Done", (), {"result": lambda _: took})()

    monkeypatch.setattr(first_call.concurrent.futures, "ProcessPoolExecutor", Pool)
    monkeypatch.setattr(sys, "argv", ["bench", "first_call", "--device", "cpu"])
    monkeypatch.setenv("COLUMNS", "120")
    assert first_call.main() == 0
    rows = [line.split("│")[1:-1] for line in capsys.readouterr().out.splitlines() if "│" in line]
    rows = [[cell.strip() for cell in row] for row in rows]
    ends = ["3", "250.0", "125.0", "62.5"]
    assert rows[:2] == [["stock", "empty", "", *ends], ["stock", "filled", "", *ends]]
    assert rows[4] == ["warmed up", "empty", "1.25", *ends]
    # Each side begins with no cache, which its second process finds.
    assert folders[0::2] == folders[1::2] and len({str(each) for each in folders}) == 3
    assert len({path for each in folders for path in each}) == 6
