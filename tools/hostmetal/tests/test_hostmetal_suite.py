"""Which files of the suite run in which schedule."""

import pytest

from hostmetal.__main__ import GRAPHS, suite
from support.variant import ROOT

FILES = {str(path.relative_to(ROOT)) for path in ROOT.glob("tests/**/test_*.py")}


def test_all_run_in_each_schedule():
    assert suite(0, None) == ["tests"]
    kernels = {file for file in FILES if not file.startswith(GRAPHS)}
    assert set(suite(1, None)) == set(suite(2, None)) == kernels


@pytest.mark.parametrize("half", [0, 1])
def test_halves_change_places(half):
    first, second = suite(1, half), suite(2, half)
    assert sorted(first + second) == suite(1, None)
    assert suite(1, 1 - half) == second and suite(2, 1 - half) == first
