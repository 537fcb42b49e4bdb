"""The interval of a ratio's rounds: what it covers, and how often equal sides are called different.

equal_rounds.json has 1500 rounds of each kind, which were recorded on two cores that other programs
kept busy: of what `compare tiny:qwen3 --null` measures, of 32 tokens in and 16 out, and of one norm
on both sides by timing.measure. They are the ratios of the two sides, in ten-thousandths.
"""

import itertools
import json
import math
import random
from pathlib import Path

import pytest

from mlx_norms._measure import timing

RECORDED = json.loads((Path(__file__).with_name("equal_rounds.json")).read_text())
RUNS, MOST = 200, 15


def outside(count, rank):
    """How likely the median is outside of these order statistics, by all ways to fall around it."""
    below = (sum(way) for way in itertools.product((0, 1), repeat=count))
    return sum(n < rank or n > count - rank for n in below) / 2**count


@pytest.mark.parametrize("count", range(6, 17))
def test_the_interval_is_the_narrowest_of_95_per_cent(count):
    rank = timing.rank(count)
    assert outside(count, rank) <= 0.05 < outside(count, rank + 1)


def test_fifteen_rounds():
    assert timing.ROUNDS == 15 and timing.rank(15) == 4
    values = [*range(1, 16)]
    random.Random(0).shuffle(values)
    assert timing.Samples(tuple(values)).interval == (4, 12)


@pytest.mark.parametrize("count", range(1, 6))
def test_too_few_rounds_differ_in_nothing(count):
    ratio = timing.Ratio((2.0,) * count, 2.0)
    assert timing.rank(count) == 0 and not ratio.differs and ratio.interval == (2, 2)
    assert ratio.text(2) == timing.SAME


@pytest.mark.parametrize("below, differs", [(3, True), (4, False)])
def test_it_holds_one(below, differs):
    """From the side of gains, from that of losses, and with a one itself at its edge."""
    values = (0.5,) * below + (1.2,) * (15 - below)
    for each in (values, tuple(1 / value for value in values)):
        ratio = timing.Ratio(each, 1.0)
        assert ratio.differs is differs
        assert ratio.text(1) == (f"{ratio.median:.1f}" if differs else timing.SAME)
    assert not timing.Ratio((1.0,) * 4 + (1.2,) * 11, 1.0).differs


def test_what_is_no_number_or_the_same_differs_in_nothing():
    assert not timing.Ratio((math.nan,) * 15, math.nan).differs
    assert not timing.Ratio((2.0,) * 15, 2.0, same=True).differs


def called_different(kind, factor=1.0, seed=0):
    """Of runs of consecutive recorded rounds, so that what rounds have in common stays."""
    drawn, count = random.Random(seed), 0
    for _ in range(RUNS):
        # From a round in which the first side began.
        start = 2 * drawn.randrange((len(RECORDED[kind]) - timing.ROUNDS) // 2)
        rounds = RECORDED[kind][start : start + timing.ROUNDS]
        count += timing.Ratio(tuple(factor * each / 1e4 for each in rounds), 1.0).differs
    return count


@pytest.mark.parametrize("kind", RECORDED)
def test_equal_sides_are_seldom_called_different(kind):
    assert called_different(kind) <= MOST


@pytest.mark.parametrize("kind", RECORDED)
def test_sides_that_differ_by_half_are_called_different(kind):
    """In most runs, however disturbed the recorded rounds were."""
    assert called_different(kind, 1.5) > 0.8 * RUNS
