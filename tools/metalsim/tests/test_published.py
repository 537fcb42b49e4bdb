"""A kernel with a data race that was published (published/README.md), and its repair."""

import numpy as np
import pytest

from metalsim import Library
from published import kl_forward

pytestmark = pytest.mark.instrument

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


@pytest.fixture
def text():
    source = kl_forward.losses()
    if source is None:
        pytest.skip(f"instrument missing: mlx-lm {kl_forward.VERSION}")
    return kl_forward.metal(source)


def repaired(text):
    read = "max_p = shared[simd_lane_id * 2 + 1];\n"
    assert text.count(read) == 1 and text.count("mem_none") == 2
    return text.replace(read, f"{read}        {BARRIER}\n").replace("mem_none", "mem_threadgroup")


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


def test_race(text):
    library = Library.from_source(text, check=2)
    lines = text.splitlines()
    found, results = set(), []
    for order in ORDERS:
        result, out, want = launch(library, order)
        assert {(f.kind, f.buffer) for f in result.faults} == {("threadgroup race", "shared")}
        found |= {lines[fault.line - 1].strip() for fault in result.faults}
        results.append(np.allclose(out, want, rtol=1e-4))
    assert found == {*RACES}
    assert {*results} == {True, False}  # which depends on the schedule


def test_repair(text):
    library = Library.from_source(repaired(text), check=2)
    for order in ORDERS:
        result, out, want = launch(library, order)
        assert result.faults == []
        np.testing.assert_allclose(out, want, rtol=1e-4)


def test_a_source_without_it():
    with pytest.raises(ValueError, match="has no kernel kl_forward"):
        kl_forward.metal("x = 1")
