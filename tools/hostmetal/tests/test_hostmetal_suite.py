"""Which files of the suite run in which schedule."""

import pytest

from hostmetal.__main__ import GRAPHS, suite
from support.variant import ROOT

FILES = {str(path.relative_to(ROOT)) for path in ROOT.glob("tests/**/test_*.py")}


def test_all_run_in_each_schedule():
    assert suite(0, None) == ["tests"]
    kernels = {file for file in FILES if not file.startswith(GRAPHS)}
    assert set(suite(1, None)) == set(suite(2, None)) == kernels


@pytest.mark.parametrize("schedule", [1, 2])
def test_eighths_are_all_files(schedule):
    eighths = [suite(schedule, eighth) for eighth in range(8)]
    assert sorted(sum(eighths, [])) == suite(schedule, None)
    first = [suite(0, eighth) for eighth in range(4)]
    assert sorted(sum(first, [])) == sorted(FILES)
    assert not set(suite(1, 0)) & set(suite(2, 0))
