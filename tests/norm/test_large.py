"""Arrays of more than 2**31 elements: offsets of elements, and bytes, that 32 bits do not hold.

A block of rows is repeated past that size. A row has the same bits in any batch, so every block of
the result must be the result of one block, which is held against the oracle. A block's rows are a
multiple of an odd prime: an offset that wraps at a power of two finds another row.

Only devices of the CUDA backend have the memory and the speed (conftest.py).
"""

import fcntl
import tempfile
from pathlib import Path

import mlx.core as mx
import pytest

import mlx_norms
from mlx_norms.ladders import LAYER_NORM
from support import oracle
from support.checks import check_gradients, check_outputs
from support.inputs import arguments, cotangents, normal
from support.norm_case import OPS, Norm

pytestmark = [pytest.mark.large, pytest.mark.usefixtures("backend", "alone", "nothing_cached")]

DTYPE = mx.bfloat16
ELEMENTS = 2**31
ROWS, LENGTH = 1021, 4096  # of a block
HEADS, HEAD_LENGTH = 7, 128
CHECKED = 8  # rows of a block that the oracle gets


@pytest.fixture
def alone():
    """One at a time, whatever pytest-xdist does: each takes up to 30 GB."""
    with (Path(tempfile.gettempdir()) / "mlx_norms_large.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


@pytest.fixture
def nothing_cached():
    yield
    mx.clear_cache()


def repeats(block):
    """How often a block is needed for more than ELEMENTS elements."""
    return ELEMENTS // block.size + 1


def repeated(block, count):
    large = mx.concatenate([block] * count)
    assert_repeats(large, block, "MLX's own concatenate")
    return large


def assert_repeats(large, block, note):
    """Every block of ``large`` has the bits of ``block``."""
    __tracebackhide__ = True
    rows = block.shape[0]
    assert large.shape == (large.shape[0] // rows * rows, *block.shape[1:])
    for first in range(0, large.shape[0], rows):
        same = bits(large[first : first + rows]) == bits(block)
        assert mx.all(same).item(), f"{note}: rows from {first} on, of {large.shape[0]}"


def bits(a):
    return a.view(mx.uint16)


def check_sums(norm, blocks, cots, count, gradients):
    """Gradients of parameters: ``count`` times what the oracle sums over a block.

    The bound, too, is a sum over rows.
    """
    truths = oracle.gradients(norm, blocks, *cots)
    for name, got in gradients.items():
        truth = truths[name]
        truth.value = truth.value * count
        truth.slack = truth.slack * count
        truth.check(got, f"of {count} blocks")


@pytest.mark.parametrize("op", OPS)
def test_rows(op):
    norm = Norm(op)
    blocks = arguments(norm, (ROWS, LENGTH), DTYPE)
    cots = cotangents(norm, blocks)
    check_block(norm, blocks, cots)
    check_large(norm, blocks, cots)


@pytest.mark.parametrize("rung", LAYER_NORM[:-1], ids=lambda rung: rung.name)
def test_rungs(rung):
    norm = Norm("layer_norm", rung=rung.name)
    blocks = arguments(norm, (8 * ROWS, LENGTH // 8), rung.dtypes[-1])
    arrays = blocks | {"x": repeated(blocks["x"], repeats(blocks["x"]))}
    (expected,) = norm(blocks)
    check_outputs(norm, blocks | {"x": blocks["x"][:CHECKED]}, [expected[:CHECKED]])
    assert_repeats(norm(arrays)[0], expected, "output")


@pytest.mark.parametrize("weight", ["shared", "each"])
def test_heads(weight):
    norm = Norm("rms_norm")
    shape = (ROWS * LENGTH // (HEADS * HEAD_LENGTH), HEADS, HEAD_LENGTH)
    of = shape[-1:] if weight == "shared" else shape[-2:]
    blocks = {"x": normal(shape, DTYPE, seed=1), "weight": normal(of, DTYPE, seed=2)}
    cots = [normal(shape, DTYPE, seed=3)]
    check_block(norm, blocks, cots)
    check_large(norm, blocks, cots)


def check_block(norm, blocks, cots):
    """Some rows of a block against the oracle, with the gradients that are rows."""
    some = {name: a[:CHECKED] if is_rows(name) else a for name, a in blocks.items()}
    some_cots = [c[:CHECKED] for c in cots]
    outputs, gradients = norm.vjp(blocks, cots)
    check_outputs(norm, some, [y[:CHECKED] for y in outputs])
    rows = [g[:CHECKED] for name, g in zip(blocks, gradients, strict=True) if is_rows(name)]
    truths = oracle.gradients(norm, some, *some_cots)
    for truth, got in zip(truths.values(), rows):  # x and residual come first
        truth.check(got, "of a block")


def check_large(norm, blocks, cots):
    count = repeats(blocks["x"])
    arrays = {n: repeated(a, count) if is_rows(n) else a for n, a in blocks.items()}
    assert arrays["x"].size > ELEMENTS
    expected, expected_gradients = norm.vjp(blocks, cots)
    for large, block in zip(norm(arrays), expected, strict=True):
        assert_repeats(large, block, "output")

    large_cots = [repeated(c, count) for c in cots]
    gradients = norm.vjp(arrays, large_cots)[1]
    mx.eval(gradients)
    sums = {}
    for name, large, block in zip(blocks, gradients, expected_gradients, strict=True):
        if is_rows(name):
            assert_repeats(large, block, f"gradient of {name}")
        else:
            sums[name] = large
    check_sums(norm, blocks, cots, count, sums)


def is_rows(name):
    return name in ("x", "residual")


def test_queries_and_keys():
    """Queries past 2**31 elements, and keys behind them in the same launch."""
    q_block = normal((ROWS * 32, 1, HEAD_LENGTH), DTYPE, seed=1)
    k = normal((ROWS, 1, HEAD_LENGTH), DTYPE, seed=2)
    weights = [normal((HEAD_LENGTH,), DTYPE, seed=seed) for seed in (3, 4)]
    count = repeats(q_block)
    q = repeated(q_block, count)

    def normalize(q, k, q_weight, k_weight):
        return mlx_norms.rms_norms([q, k], [q_weight, k_weight], 1e-5)

    large_q, same_k = normalize(q, k, *weights)
    small_q, small_k = normalize(q_block, k, *weights)
    norm = Norm("rms_norm")
    check_outputs(norm, {"x": q_block[:CHECKED], "weight": weights[0]}, [small_q[:CHECKED]])
    assert_repeats(large_q, small_q, "queries")
    assert_repeats(same_k, small_k, "keys")
    del large_q

    cots = [normal(q_block.shape, DTYPE, seed=5), normal(k.shape, DTYPE, seed=6)]
    small = mx.vjp(normalize, [q_block, k, *weights], cots)[1]
    large_cots = [repeated(cots[0], count), cots[1]]
    large = mx.vjp(normalize, [q, k, *weights], large_cots)[1]
    mx.eval(large)
    assert_repeats(large[0], small[0], "gradient of the queries")
    assert_repeats(large[1], small[1], "gradient of the keys")
    blocks = {"x": q_block, "weight": weights[0]}
    check_sums(norm, blocks, cots[:1], count, {"weight": large[2]})
    check_gradients(norm, {"x": k, "weight": weights[1]}, cots[1:], [large[1], large[3]])
