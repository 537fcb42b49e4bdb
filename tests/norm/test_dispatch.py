"""Every dispatch level of the CPU kernels gives the same bits."""

import subprocess
import sys

import pytest

from mlx_norms import _ext
from support import variant

LEVELS = ("baseline", "avx2", "avx512", "avx512bf16")

# Prints the level in use and a hash of the bits of many values and gradients.
SCRIPT = """
import hashlib, itertools
import mlx.core as mx
mx.set_default_device(mx.cpu)
from support.bits import bits
from support.group_norm import GroupCase, parameters_of
from support.inputs import arguments, cotangents, normal
from support.norm_case import DTYPES, OPS, Norm
from mlx_norms import _ext
from support import variant

digest = hashlib.sha256()
options = ({}, dict(rounding="late"), dict(weight_offset=1.0), dict(dtype=mx.float32))
for op, x, weight in itertools.product(OPS, DTYPES, DTYPES):
    for length, option in itertools.product((1, 2, 7, 31, 33, 64, 100, 255, 1025, 8193), options):
        norm = Norm(op, clamp=op.startswith("add"), **option)
        arrays = arguments(norm, (3, length), x, others={"weight": weight}, mean=3.0)
        cots = cotangents(norm, arrays)
        outputs, gradients = norm.vjp(arrays, cots)
        for a in (*outputs, *gradients):
            digest.update(bits(a).tobytes())
for channels, x, other in itertools.product((1, 3, 16, 37), DTYPES, DTYPES):
    for positions, activation in ((1, None), (30, "silu"), (533, "gelu")):
        shape = (2, positions, channels)
        given, cotangent = (normal(shape, dtype, seed=5) for dtype in (x, other))
        options = dict(num_groups=1, activation=activation, dtype=other)
        case = GroupCase("group_norm", given, **parameters_of(channels, other), **options)
        for a in (case(*case.arrays()), *mx.vjp(case, case.arrays(), [cotangent])[1]):
            digest.update(bits(a).tobytes())
for op, dtype in itertools.product(OPS, DTYPES):
    norm = Norm(op)
    for special in (float("inf"), float("nan"), 6e4, 1e-7, 1e-39, 65519.0, 0.0):
        arrays = arguments(norm, (2, 33), dtype)
        arrays["x"][0, 5] = special
        for a in norm(arrays):
            # Which NaN a row has is not promised.
            digest.update(bits(mx.where(mx.isnan(a), mx.array(2.0, a.dtype), a)).tobytes())
# One whose bits, rounded up to bfloat16's as a number's are, would pass for a number.
all_ones = mx.array([0x7FFFFFFF], mx.uint32).view(mx.float32)
for op in OPS:
    norm = Norm(op, dtype=mx.bfloat16)
    arrays = arguments(norm, (2, 33), mx.float32)
    arrays["x"][0, 5] = all_ones[0]
    digest.update(bits(mx.isnan(norm(arrays)[0]).astype(mx.float32)).tobytes())
print(_ext.cpu_isa(), digest.hexdigest())
"""


def run(level):
    environment = variant.environment()
    environment.pop("MLX_NORMS_CPU_ISA", None)
    if level is not None:
        environment["MLX_NORMS_CPU_ISA"] = level
    return subprocess.run(
        [sys.executable, "-c", SCRIPT], env=environment, capture_output=True, text=True
    )


@pytest.fixture(scope="module")
def baseline():
    done = run("baseline")
    assert done.returncode == 0, done.stderr
    return done.stdout.split()


def test_baseline_is_there(baseline):
    assert baseline[0] == "baseline" and "baseline" in _ext.cpu_isas()
    assert set(_ext.cpu_isas()) <= set(LEVELS)


@pytest.mark.parametrize("level", [*LEVELS[1:], None])
def test_level_has_the_bits_of_the_baseline(level, baseline):
    """A level that this machine lacks is refused; without a name the best one is taken."""
    done = run(level)
    if level is not None and level not in _ext.cpu_isas():
        assert done.returncode != 0 and "ValueError" in done.stderr and level in done.stderr
        return
    assert done.returncode == 0, done.stderr
    best = max(_ext.cpu_isas(), key=LEVELS.index)
    assert done.stdout.split() == [level or best, baseline[1]]


def test_unknown_level_is_refused():
    done = run("sse9")
    assert done.returncode != 0
    assert "ValueError" in done.stderr and "MLX_NORMS_CPU_ISA" in done.stderr, done.stderr
