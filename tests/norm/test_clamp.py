"""clamp=True: a float16 sum saturates, and nothing else changes."""

import itertools

import mlx.core as mx
import numpy as np
import pytest

from support import oracle
from support.bits import assert_same_bits
from support.inputs import arguments, cotangents, normal
from support.norm_case import DTYPES, Norm

pytestmark = pytest.mark.usefixtures("backend", "no_fusion")

ADDS = ("add_rms_norm", "add_layer_norm")
INF, NAN, MAX = float("inf"), float("nan"), 65504.0


def row_of(norm, pairs, length=33, dtype=mx.float16, other=mx.float16):
    """Arguments whose x and residual begin with the pairs given."""
    arrays = arguments(norm, (2, length), dtype, others={"residual": other})
    for name, values in zip(("x", "residual"), zip(*pairs, strict=True), strict=True):
        arrays[name][0, : len(values)] = mx.array(values, arrays[name].dtype)
    return arrays


@pytest.mark.parametrize("op", ADDS)
def test_sum_saturates(op):
    pairs = [(6e4, 6e4), (-6e4, -6e4), (INF, 1.0), (-INF, 0.0), (1.0, -INF), (INF, INF)]
    pairs += [(MAX, 16.0), (MAX, 0.0), (-MAX, 0.0), (MAX, -32.0), (65472.0, 16.0), (1.0, 2.0)]
    expected = [MAX, -MAX, MAX, -MAX, -MAX, MAX, MAX, MAX, -MAX, 65472.0, 65472.0, 3.0]
    for length in (12, 31, 33, 64, 1025):
        norm = Norm(op, clamp=True)
        arrays = row_of(norm, pairs, length)
        y, s = norm(arrays)
        np.testing.assert_array_equal(oracle.exact(s)[0, :12], expected)
        for truth, got in zip(oracle.forward(norm, arrays), (y, s), strict=True):
            truth.check(got)


@pytest.mark.parametrize("op", ADDS)
def test_every_place_saturates(op):
    norm = Norm(op, clamp=True)
    for length in (1, 31, 33, 65):
        arrays = arguments(norm, (2, length), mx.float16)
        arrays |= {
            n: mx.full((2, length), v, mx.float16) for n, v in (("x", 5e4), ("residual", 4e4))
        }
        y, s = norm(arrays)
        assert mx.all(s == MAX)
        oracle.forward(norm, arrays)[0].check(y)


@pytest.mark.parametrize("op", ADDS)
def test_nan_stays_nan(op):
    norm = Norm(op, clamp=True)
    for pair in ((NAN, 1.0), (1.0, NAN), (INF, -INF), (NAN, INF)):
        y, s = norm(row_of(norm, [(0.0, 0.0), pair]))
        assert mx.isnan(s[0, 1]) and not mx.any(mx.isnan(s[:, 2:])), pair
        assert mx.all(mx.isnan(y[0])) and not mx.any(mx.isnan(y[1])), pair


@pytest.mark.parametrize("op", ADDS)
def test_without_clamp_a_sum_overflows(op):
    pairs = [(6e4, 6e4), (-6e4, -6e4), (MAX, 16.0)]
    s = Norm(op)(row_of(Norm(op), pairs))[1]
    np.testing.assert_array_equal(oracle.exact(s)[0, :3], [INF, -INF, INF])


@pytest.mark.parametrize("op", ADDS)
def test_sums_of_other_dtypes_are_left_alone(op):
    for x, r in itertools.product(DTYPES, repeat=2):
        if x == r == mx.float16:
            continue
        pairs = [(6e4, 6e4), (-6e4, -6e4), (3e4, 2.0), (MAX, MAX)]
        arrays = row_of(Norm(op), pairs, dtype=x, other=r)
        cots = cotangents(Norm(op), arrays)
        results = []
        for clamp in (False, True):
            norm = Norm(op, clamp=clamp)
            out, grads = norm.vjp(arrays, cots)
            results.append([*out, *grads])
        for a, b in zip(*results, strict=True):
            assert_same_bits(a, b, f"{op} {x} and {r}")


@pytest.mark.parametrize("op", ADDS)
def test_small_float16_sums_are_left_alone(op):
    arrays = arguments(Norm(op), (5, 65), mx.float16)
    for a, b in zip(Norm(op, clamp=True)(arrays), Norm(op)(arrays), strict=True):
        assert_same_bits(a, b, op)


@pytest.mark.parametrize("dtype", [None, mx.float32], ids=str)
@pytest.mark.parametrize("op", ADDS)
def test_gradient_is_zero_where_the_sum_is_saturated(op, dtype):
    """At +-65504 too, however it was reached, and for both cotangents."""
    norm = Norm(op, clamp=True, dtype=dtype)
    pairs = [(6e4, 6e4), (-6e4, -6e4), (MAX, 0.0), (-MAX, 0.0), (65472.0, 0.0), (3e4, 3e4)]
    for length in (6, 33, 65):
        arrays = row_of(norm, pairs, length)
        cots = cotangents(norm, arrays)
        _, grads = norm.vjp(arrays, cots)
        truths = oracle.gradients(norm, arrays, *cots)
        for grad, truth in zip(grads, truths.values(), strict=True):
            truth.check(grad)
        for grad in grads[:2]:
            assert mx.all(grad[0, :4] == 0) and mx.all(grad[0, 4:6] != 0)


@pytest.mark.parametrize("op", ADDS)
def test_tangent_is_zero_where_the_sum_is_saturated(op):
    norm = Norm(op, clamp=True)
    pairs = [(6e4, 6e4), (-6e4, -6e4), (MAX, 0.0), (-MAX, 0.0), (65472.0, 0.0), (3e4, 3e4)]
    arrays = row_of(norm, pairs)
    ones = [
        mx.ones_like(a) if n in ("x", "residual") else mx.zeros_like(a) for n, a in arrays.items()
    ]
    _, (_, tangent) = mx.jvp(norm.function(list(arrays)), list(arrays.values()), ones)
    np.testing.assert_array_equal(oracle.exact(tangent)[0, :6], [0, 0, 0, 0, 2, 2])


@pytest.mark.parametrize("op", ADDS)
def test_tangent_is_the_transpose_of_the_gradient(op):
    """A saturated element has no tangent of its own sum, but its norm has one by the others'."""
    norm = Norm(op, clamp=True, dtype=mx.float32)
    arrays = row_of(norm, [(6e4, 6e4), (-6e4, -6e4), (3e4, 3e4), (1e4, -3e4)], length=6)
    arrays["x"][0, 4:] = mx.array([2e4, -1e4], arrays["x"].dtype)
    tangents = {n: normal(a.shape, a.dtype, seed=n) for n, a in arrays.items()}
    for name, tangent in tangents.items():
        tangents[name] = (
            tangent * 0 if name in ("weight", "bias") else tangent * mx.array([[1], [0]])
        )
    f, args = norm.function(list(arrays)), list(arrays.values())
    _, (output, _) = mx.jvp(f, args, list(tangents.values()))
    # Values near 1e5 make gradients of 1e-5, which float16 does not hold well.
    cotangent = normal(output.shape, mx.float32, seed=7, std=1e4)
    _, gradients = mx.vjp(f, args, [cotangent, mx.zeros_like(arrays["x"])])
    forward = np.sum(oracle.exact(cotangent) * oracle.exact(output))
    backward = sum(
        np.sum(oracle.exact(t) * oracle.exact(g))
        for t, g in zip(tangents.values(), gradients, strict=True)
    )
    np.testing.assert_allclose(forward, backward, rtol=1e-3)


@pytest.mark.parametrize("op", ADDS)
def test_second_derivative_does_not_pass_a_saturated_element(op):
    norm = Norm(op, clamp=True)
    arrays = row_of(norm, [(6e4, 6e4), (3e4, 1e3)])
    names = list(arrays)

    def slope(*args):
        gradient = mx.grad(lambda *a: (norm.function(names)(*a)[0] ** 2).astype(mx.float32).sum())
        return (gradient(*args)[0].astype(mx.float32) * 1e4).sum()

    second = mx.grad(slope)(*arrays.values())
    assert second[0, 0] == 0 and mx.any(second[0] != 0) and mx.all(mx.isfinite(second))


@pytest.mark.parametrize("op", ADDS)
def test_vmapped_and_compiled(op):
    norm = Norm(op, clamp=True)
    arrays = row_of(norm, [(6e4, 6e4), (-6e4, -6e4), (INF, 0.0), (NAN, 0.0), (MAX, 0.0)])
    expected = norm(arrays)
    names = list(arrays)
    for got in (
        mx.compile(norm.function(names))(*arrays.values()),
        mx.vmap(norm.function(names), in_axes=(0, 0, *(None for _ in names[2:])))(*arrays.values()),
    ):
        np.testing.assert_array_equal(oracle.exact(got[1]), oracle.exact(expected[1]))
        np.testing.assert_array_equal(oracle.exact(got[0]), oracle.exact(expected[0]))
    weights = mx.stack([arrays["weight"], 2 * arrays["weight"]])
    batched = mx.vmap(lambda w: norm(arrays | {"weight": w}))(weights)
    for i in range(2):
        truths = oracle.forward(norm, arrays | {"weight": weights[i]})
        for truth, got in zip(truths, batched, strict=True):
            truth.check(got[i], "vmap over weight")
