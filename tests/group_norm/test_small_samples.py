"""Samples of few elements or positions, whose groups the CPU takes several at once."""

import itertools

import mlx.core as mx
import pytest

from support import inputs
from support.bits import assert_same_bits
from support.group_norm import GroupCase, parameters_of
from support.inputs import normal
from support.norm_case import DTYPES

pytestmark = pytest.mark.usefixtures("backend")

# Positions, channels and groups: groups of one element and of more than a call takes, that end
# within four or within a vector, and the last sizes before the kernels for larger samples.
SIZES = [(1, 1, 1), (1, 3, 3), (1, 8, 2), (2, 6, 3), (1, 64, 8), (4, 64, 8), (1, 66, 33)]
SIZES += [(3, 35, 35), (1, 1250, 625), (7, 300, 300), (1, 600, 300), (16, 2, 1), (64, 4, 2)]
SIZES += [
    (1, 128, 1),
    (171, 3, 1),
    (512, 1, 1),
    (2, 257, 1),
    (5, 36, 1),
    (7, 400, 10),
    (1, 1000, 4),
]
SIZES += [(1, 4800, 3), (3, 990, 330), (1, 2500, 2)]
SAMPLES = (1, 2, 7, 33, 130)


def shape_of(samples, positions, channels):
    return (samples, channels) if positions == 1 else (samples, positions, channels)


def case_of(x, groups, torch, of_parameters, **options):
    parameters = parameters_of(x.shape[-1], of_parameters)
    options |= dict(num_groups=groups, pytorch_compatible=torch)
    return GroupCase("group_norm", x, **parameters, **options)


@pytest.mark.parametrize("sizes", SIZES, ids=str)
def test_every_size(sizes):
    positions, channels, groups = sizes
    for i, samples in enumerate(SAMPLES[: 2 if inputs.SLOW else 5]):
        if samples * positions * channels > 60_000:
            continue
        for torch, dtype in itertools.product((False, True), inputs.in_turn(DTYPES, i)):
            x = normal(shape_of(samples, positions, channels), dtype, seed=1, mean=2.0)
            case_of(x, groups, torch, dtype).check()
            activation = ("silu", "gelu")[i % 2]
            case_of(x, groups, torch, dtype, activation=activation).check()
            GroupCase("group_norm", x, num_groups=groups, pytorch_compatible=torch).check()


def test_dtypes():
    for x, w, out in itertools.product(DTYPES, repeat=3):
        for shape, groups in (((9, 8), 2), ((3, 3, 24), 4), ((2, 1, 900), 3)):
            for torch in (False, True):
                case_of(normal(shape, x, seed=2), groups, torch, w, dtype=out).check()


def test_views():
    """Channels and positions that do not adjoin, and samples that are one in memory."""
    whole = normal((9, 6, 48), mx.float32, seed=3)
    mx.eval(whole)
    for dtype, torch in itertools.product(DTYPES, (False, True)):
        a = whole.astype(dtype)
        one = mx.broadcast_to(a[:1], a.shape)
        for x in (a[::2, 1:4, ::2], a[:, ::3], a.transpose(1, 0, 2), a.transpose(0, 2, 1), one):
            cotangent = normal(x.shape[::-1], dtype, seed=4).transpose(2, 1, 0)
            case_of(x, 6, torch, dtype).check(cotangent)
            case_of(x[:, 0], 2, torch, dtype).check(cotangent[:, 0])


def test_a_sample_has_the_same_bits_alone():
    for positions, channels, groups in SIZES:
        for torch, dtype in itertools.product((False, True), (mx.float32, mx.bfloat16)):
            x = normal(shape_of(40, positions, channels), dtype, seed=5)
            g = normal(x.shape, dtype, seed=6)
            case = case_of(x, groups, torch, dtype)

            def results(x, g, case=case):
                (y,), gradients = mx.vjp(case, [x, *case.parameters.values()], [g])
                return y, gradients[0]

            for part in (slice(0, 1), slice(33, 40)):
                for got, want in zip(results(x[part], g[part]), results(x, g), strict=True):
                    assert_same_bits(got, want[part], f"{case} {part}")


def test_dead_arrays_become_the_results():
    """In place, as far as a call has read."""
    for shape, groups in (((40, 64), 8), ((7, 3, 35), 35), ((3, 600), 300), ((2, 5000), 2)):
        for dtype, torch in itertools.product(DTYPES, (False, True)):
            x, g = (normal(shape, dtype, seed=seed) for seed in (7, 8))
            case = case_of(x, groups, torch, dtype)
            mx.eval(x, g)
            assert_same_bits(case(x * 1, *case.parameters.values()), case(*case.arrays()))
            of = lambda x, case=case: case(x, *case.parameters.values())  # noqa: E731
            want = mx.vjp(of, [x], [g])[1][0]
            assert_same_bits(mx.vjp(of, [x * 1], [g * 1])[1][0], want)
