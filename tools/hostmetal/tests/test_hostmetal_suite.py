"""Which files of the suite run in which schedule."""

import argparse

import pytest

from hostmetal.__main__ import GRAPHS, suite
from parts import ALL, Part, part
from support.variant import ROOT

FILES = {str(path.relative_to(ROOT)) for path in ROOT.glob("tests/**/test_*.py")}


def test_all_run_in_each_schedule():
    assert set(suite(0, ALL)) == FILES
    kernels = {file for file in FILES if not file.startswith(GRAPHS)}
    assert set(suite(1, ALL)) == set(suite(2, ALL)) == kernels


@pytest.mark.parametrize("schedule", [0, 1, 2])
def test_parts_are_all_files(schedule):
    sixths = [suite(schedule, Part(k, 6)) for k in range(1, 7)]
    assert sorted(sum(sixths, [])) == sorted(suite(schedule, ALL))
    assert not set(suite(1, Part(1, 6))) & set(suite(2, Part(1, 6)))


def test_what_is_a_part():
    assert part("2/3").of("abcdefgh") == "beh"
    for text in ("0/3", "4/3", "3", "a/b", "1/"):
        with pytest.raises(argparse.ArgumentTypeError, match="is no part as 2/3 is"):
            part(text)
