"""Norms of what one array is the source of, as of queries and keys or latents: one launch."""

import mlx.core as mx
import pytest
from mlx_lm.models.activations import swiglu

import mlx_norms
from support.bits import assert_same_bits
from support.inputs import normal
from support.norm_case import DTYPES
from support.patched_runs import operations

pytestmark = pytest.mark.usefixtures("backend")

B, T, D, EPS = 2, 3, 64, 1e-3
BESIDE = "a norm beside another, in its launch"
NORM = "mlx_norms::RMSNorm"


def matrix(seed, outputs, dtype, depth=D):
    return normal((depth, outputs), dtype, seed=seed) * depth**-0.5


def rms(x, w=None, eps=EPS):
    return mx.fast.rms_norm(x, w, eps)


def vector(seed, length, dtype):
    return 1 + 0.1 * normal((length,), dtype, seed=seed)


def latents(dtype):
    """As of MLA: one of a projection, one of a part of another."""
    a, b = matrix("a", 96, dtype), matrix("b", 40, dtype)
    v, w = vector("v", 96, dtype), vector("w", 32, dtype)
    mx.eval(a, b, v, w)

    def code(x):
        return rms(x @ a, v), rms((x @ b)[..., :32], w)

    return code, 1


def whole_projections(dtype):
    """As of OLMo 2, before the heads are split."""
    a, b = matrix("a", 128, dtype), matrix("b", 32, dtype)
    v, w = vector("v", 128, dtype), vector("w", 32, dtype)
    mx.eval(a, b, v, w)

    def heads(y):
        return y.reshape(B, T, -1, 16).transpose(0, 2, 1, 3)

    return lambda x: [heads(y) for y in (rms(x @ a, v), rms(x @ b, w))], 1


def numbers_after(dtype):
    """As of Qwen3-Next's queries and keys, times a power of two each."""
    a = matrix("a", 96, dtype)
    mx.eval(a)

    def code(x):
        q, k, v = mx.split(mx.sigmoid(x @ a), 3, axis=-1)
        q, k = (y.reshape(B, T, 2, 16) for y in (q, k))
        return 0.0625 * rms(q), 0.3 * rms(k), v

    return code, 1


def three_slices(dtype):
    """As of Jamba's dt, B and C."""
    a = matrix("a", 80, dtype)
    weights = [vector(name, n, dtype) for name, n in zip("uvw", (32, 24, 24), strict=True)]
    mx.eval(a, weights)

    def code(x):
        parts = mx.split(x @ a, [32, 56], axis=-1)
        return [rms(y, w) for y, w in zip(parts, weights, strict=True)]

    return code, 2


def five(dtype):
    """Of which four are one launch."""
    return lambda x: [rms(y) for y in mx.split(mx.exp(x)[..., :60], 5, axis=-1)], 3


CASES = [latents, whole_projections, numbers_after, three_slices, five]


def both(code, *arrays):
    """The norms that joined others at eval; results have the bits of a run without that pass."""
    with mlx_norms.patched():
        alone = list(code(*arrays))
        mx.eval(alone)
    with mlx_norms.patched(projections=True):
        joined = list(code(*arrays))
        mx.eval(joined)
        beside = mlx_norms.report().around.get(BESIDE, 0)
    for y, z in zip(joined, alone, strict=True):
        assert_same_bits(y, z)
    return beside


def joins(backend):
    return backend != "cpu"  # which has no launch to save


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("case", CASES)
def test_at_eval(case, dtype, backend):
    code, beside = case(dtype)
    x = normal((B, T, D), dtype, seed="x")
    assert both(code, x) == (beside if joins(backend) else 0)


@pytest.mark.parametrize("case", CASES)
def test_launches(case, launches):
    code, beside = case(mx.float32)
    x = normal((B, T, D), mx.float32, seed="x")
    mx.eval(x)
    with mlx_norms.patched(projections=True):
        kernels = [launch.kernel for launch in launches(*code(x))]
    assert sum(kernel.startswith("rms_norms_") for kernel in kernels) == 1
    assert len(kernels) == (2 if case is five else 1)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("case", CASES)
def test_compiled(case, dtype, backend):
    code, beside = case(dtype)
    x = normal((B, T, D), dtype, seed="x")
    with mlx_norms.patched():
        expected = list(code(x))
        mx.eval(expected)
        got = list(mx.compile(code)(x))
        mx.eval(got)
        assert mlx_norms.report().around.get(BESIDE, 0) == (2 * beside if joins(backend) else 0)
    for y, z in zip(got, expected, strict=True):
        assert y.dtype == z.dtype
        assert mx.allclose(y.astype(mx.float32), z.astype(mx.float32), 0, 0.02)


@pytest.mark.parametrize("case", CASES)
def test_gradients(case):
    code, _ = case(mx.float32)
    x = normal((B, T, D), mx.float32, seed="x")

    def loss(x):
        return sum((mx.sin(3 * y) * y).sum() for y in code(x))

    expected = mx.grad(loss)(x)
    mx.eval(expected)
    with mlx_norms.patched():
        assert mx.allclose(mx.grad(loss)(x), expected, 1e-4, 1e-5)
        assert mx.allclose(mx.compile(mx.grad(loss))(x), expected, 1e-4, 1e-5)


class TestLeft:
    """Norms of which one may need the other, and those that no launch can have together."""

    def check(self, code, *arrays):
        assert both(code, *arrays) == 0

    def test_one_of_the_other(self):
        a = matrix("a", D, mx.float32)
        mx.eval(a)

        def code(x):
            y = rms(mx.exp(x))
            return y, rms(y @ a)

        self.check(code, normal((B, T, D), mx.float32, seed="x"))

    def test_a_weight_of_the_other(self):
        def code(x):
            y = rms(mx.exp(x)[..., :32])
            return y, rms(mx.exp(x)[..., 32:], y.mean((0, 1)))

        self.check(code, normal((B, T, D), mx.float32, seed="x"))

    def test_a_sum_with_the_other(self):
        def code(x):
            x = mx.exp(x)
            y = rms(x)
            return y, rms(mx.concatenate([x, y], axis=-1))

        self.check(code, normal((B, T, D), mx.float32, seed="x"))

    def test_a_sum_that_becomes_computed_with_the_other(self):
        """The sum's norm takes a weight of the one, and the sum itself is the other's source."""

        def code(x, r):
            x = mx.exp(x)
            y, h = rms(x), x + r
            return y, rms(h, y.mean((0, 1))), rms(h[..., :32])

        self.check(code, *(normal((B, T, D), mx.float32, seed=seed) for seed in "xr"))

    @pytest.mark.parametrize("projections", [False, True])
    def test_one_that_something_else_computes(self, projections):
        a, b = mx.split(mx.exp(normal((B, T, D), mx.float32, seed="x")), 2, axis=-1)
        with mlx_norms.patched(projections=projections):
            mx.eval(mx.sigmoid(rms(a)), rms(b))
            assert mlx_norms.report().around == {"an activation after a norm": 1}

    def test_other_options(self):
        def code(x):
            a, b, c = mx.split(mx.exp(x)[..., :48], 3, axis=-1)
            return rms(a), rms(b, eps=2 * EPS), mx.fast.layer_norm(c, None, None, EPS)

        self.check(code, normal((B, T, D), mx.float32, seed="x"))

    @pytest.mark.backends("cpu", "metal", "metal-sim")
    def test_lengths_without_a_common_instance(self):
        def code(x):
            x = mx.exp(x)
            return rms(x[..., :16]), rms(mx.tile(x, (1, 1, 512)))

        self.check(code, normal((B, 1, D), mx.float32, seed="x"))

    def test_functions_compiled_once(self):
        """Their nodes have one primitive in MLX."""
        a = matrix("a", 32, mx.float32, depth=32)
        mx.eval(a)

        def code(x):
            y = rms(swiglu(x[..., :32], x[..., 32:]) @ a)
            return y, rms(swiglu(y, x[..., :32]) @ a)

        self.check(code, normal((B, T, D), mx.float32, seed="x"))

    def test_no_source_in_common(self):
        def code(x, y):
            return rms(mx.exp(x)), rms(mx.exp(y))

        self.check(code, *(normal((B, T, D), mx.float32, seed=seed) for seed in "xy"))


def test_a_norm_that_is_held_keeps_its_value(backend):
    """The product with a number is of its own where Python holds the norm."""
    x = normal((B, T, D), mx.float32, seed="x")

    def code(x):
        a, b = mx.split(mx.exp(x), 2, axis=-1)
        n = rms(a)
        return n, 0.5 * n, 0.25 * rms(b)

    assert both(code, x) == (1 if joins(backend) else 0)


def test_what_is_evaluated_alone_takes_no_other(backend):
    x = normal((B, T, D), mx.float32, seed="x")
    with mlx_norms.patched(projections=True):
        a, b = (rms(y) for y in mx.split(mx.exp(x), 2, axis=-1))
        mx.eval(a)
        assert mlx_norms.report().around.get(BESIDE, 0) == 0
        assert operations(b)[NORM] == 1
        mx.eval(b)
    assert_same_bits(b, mlx_norms.rms_norm(mx.exp(x)[..., D // 2 :], None, EPS))
