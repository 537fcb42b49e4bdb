"""A kernel with a data race that was published (published/README.md), and its repair."""

from pathlib import Path

import numpy as np
import pytest

from metalsim import Library

pytestmark = pytest.mark.instrument

PATH = Path(__file__).parent / "published/kl_forward.metal"
TEXT = PATH.read_text()
ROWS, COLUMNS, ORDERS = 2, 5000, range(4)
# Maxima are read, and sums written in their place, with no barrier between. The sum at the end has
# barriers, but with mem_none.
RACES = (
    "max_q = shared[simd_lane_id * 2 + 0];",
    "max_p = shared[simd_lane_id * 2 + 1];",
    "shared[simd_group_id * 2 + 0] = sum_exp_q;",
    "shared[simd_group_id * 2 + 1] = sum_exp_p;",
    "shared[simd_group_id] = kl;",
    "kl = shared[simd_lane_id];",
)
BARRIER = "threadgroup_barrier(mem_flags::mem_threadgroup);"


def repaired():
    read = "max_p = shared[simd_lane_id * 2 + 1];\n"
    assert TEXT.count(read) == 1 and TEXT.count("mem_none") == 2
    return TEXT.replace(read, f"{read}        {BARRIER}\n").replace("mem_none", "mem_threadgroup")


def launch(library, order):
    """Runs it; returns the result, what it wrote and what is right."""
    random = np.random.default_rng(0)
    q, p = random.normal(size=(2, ROWS, COLUMNS)).astype(np.float32)
    out = np.zeros(ROWS, np.float32)
    args = {"logits_q": q, "logits_p": p, "out": out}
    result = library.launch(
        "kl_forward", args, groups=(1, ROWS), group=1024, out=["out"], order=order
    )
    log_q, log_p = (x - np.log(np.exp(x).sum(1, keepdims=True)) for x in np.float64([q, p]))
    return result, out, (np.exp(log_p) * (log_p - log_q)).sum(1)


def test_race():
    library = Library(PATH, check=2)
    lines = TEXT.splitlines()
    found, results = set(), []
    for order in ORDERS:
        result, out, want = launch(library, order)
        assert {(f.kind, f.buffer) for f in result.faults} == {("threadgroup race", "shared")}
        found |= {lines[fault.line - 1].strip() for fault in result.faults}
        results.append(np.allclose(out, want, rtol=1e-4))
    assert found == {*RACES}
    assert {*results} == {True, False}  # which depends on the schedule


def test_repair():
    library = Library.from_source(repaired(), check=2)
    for order in ORDERS:
        result, out, want = launch(library, order)
        assert result.faults == []
        np.testing.assert_allclose(out, want, rtol=1e-4)
