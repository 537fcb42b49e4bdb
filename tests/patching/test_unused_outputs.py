"""An output that takes no part in what is differentiated does nothing to gradients."""

import mlx.core as mx
import numpy as np
import pytest

import mlx_norms
from support.inputs import normal
from support.patched_runs import NORMS, run_patched, stock_norms

pytestmark = pytest.mark.usefixtures("backend")

INF = float("inf")


def rows(seed, bad=None, dtype=mx.float32):
    x = normal((3, 8), dtype, seed=seed)
    if bad is not None:
        x[1, 2] = bad
    return x


@pytest.mark.parametrize("bad", [INF, -INF, float("nan")])
@pytest.mark.parametrize("norm", NORMS, ids=lambda norm: norm.name)
def test_norm_of_a_sum_that_nothing_takes(norm, bad):
    """It is a node of its own, which the loss does not reach, and no pass sees."""

    def gradients():
        def loss(x, r, *parameters):
            h = x + r
            norm(h, *parameters)
            return (h * h).sum()

        parameters = [normal((32,), mx.float32, seed=i) for i in range(len(norm.parameters))]
        parameters[0][5] = bad
        x, r = (normal((4, 32), mx.float32, seed=seed) for seed in "xr")
        x[2, 3] = bad
        return mx.grad(loss, argnums=range(2 + len(parameters)))(x, r, *parameters)

    got, report = run_patched(gradients)
    assert (report.calls, report.fused) == (1, 0)
    with stock_norms():
        expected = gradients()
    for a, b in zip(got, expected, strict=True):
        np.testing.assert_array_equal(np.array(a), np.array(b))


@pytest.mark.parametrize("dtype", [mx.float32, mx.float16, mx.bfloat16], ids=str)
@pytest.mark.parametrize("op", ["add_rms_norm", "add_layer_norm"])
def test_sum_alone(op, dtype):
    x, r = rows(0, INF, dtype), rows(1, dtype=dtype)
    w = normal((8,), dtype, seed=2)
    w[3] = INF
    arrays = [x, r, w] + ([w] if "layer" in op else [])

    def loss(*arrays):
        return getattr(mlx_norms, op)(*arrays)[1].astype(mx.float32).sum()

    ones, *rest = mx.grad(loss, argnums=range(len(arrays)))(*arrays)
    assert mx.all(ones == 1) and mx.all(rest[0] == 1)
    assert all(mx.all(gradient == 0) for gradient in rest[1:])


@pytest.mark.parametrize("op", ["rms_norm_linear", "layer_norm_linear"])
def test_sum_beside_projections(op):
    x, r = rows(0, INF), rows(1)
    parameters = [normal((8,), mx.float32, seed=i) for i in range(1 + ("layer" in op))]
    weight = normal((5, 8), mx.float32, seed=4)

    def loss(x, r, weight, *parameters):
        return getattr(mlx_norms, op)(x, *parameters, [weight], 1e-5, residual=r)[1].sum()

    of_x, of_r, *others = mx.grad(loss, argnums=range(3 + len(parameters)))(
        x, r, weight, *parameters
    )
    assert mx.all(of_x == 1) and mx.all(of_r == 1)
    assert all(mx.all(gradient == 0) for gradient in others)


def test_a_saturated_sum_alone():
    x = mx.array([[6e4, 1.0, -6e4, 2.0]], mx.float16)

    def loss(x):
        return mlx_norms.add_rms_norm(x, x, None, clamp=True)[1].astype(mx.float32).sum()

    assert mx.array_equal(mx.grad(loss)(x), mx.array([[0, 2, 0, 2]], mx.float16))


@pytest.mark.parametrize("used", [0, 1])
def test_one_of_queries_and_keys(used):
    q, k = rows(0), rows(1)
    tensors = [q, k]
    tensors[1 - used] = rows(2, INF)
    w = [normal((8,), mx.float32, seed=3), normal((8,), mx.float32, seed=4)]

    def loss(q, k, qw, kw):
        return (mlx_norms.rms_norms([q[:, None], k[:, None]], [qw, kw], 1e-5)[used] ** 2).sum()

    gradients = mx.grad(loss, argnums=(0, 1, 2, 3))(*tensors, *w)
    alone = mx.grad(lambda x, w: (mlx_norms.rms_norm(x, w, 1e-5) ** 2).sum(), argnums=(0, 1))
    expected = alone(tensors[used], w[used])
    for i in (0, 2):
        assert mx.allclose(gradients[i + used], expected[i // 2], rtol=1e-5, atol=1e-6)
        assert mx.all(gradients[i + 1 - used] == 0)
