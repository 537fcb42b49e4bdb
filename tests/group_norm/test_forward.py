"""Results and gradients of group, instance and batch norm."""

import itertools

import mlx.core as mx
import mlx.nn
import numpy as np
import pytest

import mlx_norms
from mlx_norms._table.exact import result_type
from support import inputs
from support.bits import assert_same_bits
from support.group_norm import GroupCase, parameters_of
from support.inputs import normal
from support.norm_case import DTYPES
from support.oracle import exact
from support.releases import since

pytestmark = pytest.mark.usefixtures("backend")

# Positions and channels: of less than a vector, of no whole vector, of more than a threadgroup has,
# of more than a threadgroup holds or just as many.
SHAPES = [
    (2, 3, 8),
    (3, 1, 4),
    (1, 5, 7, 12),
    (2, 4, 4, 36),
    (2, 300, 16),
    (3, 130, 96),
    (1, 9, 640),
    (2, 3, 3, 2, 20),
    (1, 56, 56, 32),
]


def groups_of(channels):
    return [g for g in (1, 2, 4, 32, channels) if channels % g == 0]


@pytest.mark.parametrize("shape", SHAPES)
def test_group_norm(shape):
    for i, groups in enumerate(groups_of(shape[-1])):
        for torch, dtype in itertools.product((False, True), inputs.in_turn(DTYPES, i)):
            x = normal(shape, dtype, seed=1, mean=0.5)
            options = dict(num_groups=groups, pytorch_compatible=torch)
            GroupCase("group_norm", x, **parameters_of(shape[-1], dtype), **options).check()
            activation = ("silu", "gelu")[i % 2]
            GroupCase(
                "group_norm", x, **parameters_of(shape[-1], dtype), activation=activation, **options
            ).check()


@pytest.mark.parametrize("shape", SHAPES)
def test_instance_norm(shape):
    for dtype in DTYPES:
        x = normal(shape, dtype, seed=2, std=3.0)
        GroupCase("instance_norm", x).check()
        GroupCase("instance_norm", x, **parameters_of(shape[-1], dtype), eps=0.1).check()


@pytest.mark.parametrize("shape", [*SHAPES, (7, 24)])
def test_batch_norm(shape):
    for dtype in DTYPES:
        x = normal(shape, dtype, seed=3, mean=-2.0)
        all_four = parameters_of(shape[-1], mx.float32, running=True)
        GroupCase("batch_norm", x).check()
        GroupCase("batch_norm", x, **parameters_of(shape[-1], dtype), training=True).check()
        GroupCase("batch_norm", x, **all_four).check()
        GroupCase("batch_norm", x, **all_four, training=True).check()


def test_many_positions():
    """A thread takes more than the fewest, and a group has many partial statistics."""
    x = normal((1, 1101, 256), mx.float32, seed=10)
    parameters = parameters_of(256, mx.float32)
    GroupCase("group_norm", x, **parameters, num_groups=1).check()
    GroupCase("group_norm", x, **parameters, num_groups=32).check()
    GroupCase("instance_norm", x, **parameters).check()


# The most that threads hold on CUDA; of that, channels of two groups in a thread's vector.
@pytest.mark.parametrize(
    "shape, groups", [((2, 4096, 20), 1), ((1, 3000, 20), 2), ((2, 2500, 16), 2)]
)
def test_groups_of_one_launch(shape, groups):
    for dtype, torch in itertools.product(DTYPES, (False, True)):
        x = normal(shape, dtype, seed=14, mean=1.0)
        parameters = parameters_of(shape[-1], dtype)
        options = dict(num_groups=groups, pytorch_compatible=torch, activation="silu")
        GroupCase("group_norm", x, **parameters, **options).check()
    GroupCase("instance_norm", x, **parameters).check()


# A channel, no whole vector, and chunks of the fewest and of the most positions and parts of them.
@pytest.mark.backends("cpu")
@pytest.mark.parametrize(
    "shape", [(2, 1, 1), (1, 50, 1), (2, 2100, 3), (3, 33, 17), (1, 4100, 16), (2, 70, 1100)]
)
def test_every_size_on_the_cpu(shape):
    for dtype, groups, torch in itertools.product(DTYPES, {1, shape[-1]}, (False, True)):
        x = normal(shape, dtype, seed=11, mean=2.0)
        parameters = parameters_of(shape[-1], dtype)
        options = dict(num_groups=groups, pytorch_compatible=torch, activation="silu")
        GroupCase("group_norm", x, **parameters, **options).check()
        if shape[:2] != (2, 1):
            GroupCase("batch_norm", x, **parameters, training=True).check()


def test_mixed_dtypes():
    for i, (x, w, out) in enumerate(itertools.product(DTYPES, DTYPES, DTYPES)):
        options = dict(num_groups=4, dtype=out, pytorch_compatible=i % 2 == 0)
        parameters = parameters_of(24, w)
        GroupCase("group_norm", normal((2, 30, 24), x, seed=4), **parameters, **options).check()
        one = dict([list(parameters.items())[i % 2]])
        GroupCase("group_norm", normal((2, 30, 24), x, seed=4), **one, **options).check()


def test_large_means():
    for dtype, mean in ((mx.float32, 1e4), (mx.float16, 300.0), (mx.bfloat16, 100.0)):
        x = normal((2, 500, 32), dtype, seed=5, mean=mean)
        for torch in (False, True):
            options = dict(num_groups=8, pytorch_compatible=torch)
            GroupCase("group_norm", x, **options).check_result(mlx_norms.group_norm(x, **options))
        GroupCase("instance_norm", x).check_result(mlx_norms.instance_norm(x))
        GroupCase("batch_norm", x, training=True).check_result(
            mlx_norms.batch_norm(x, mean=None, var=None, training=True)
        )


@pytest.mark.parametrize("positions", [5, 700, 20000])
def test_outliers(positions):
    for at, size in itertools.product((0, positions // 2, positions - 1), (1e3, 1e6, 1e9)):
        x = normal((2, positions, 8), mx.float32, seed=12)
        x[0, at, 0] = size
        GroupCase("group_norm", x, num_groups=4).check()
        GroupCase("instance_norm", x).check()


@pytest.mark.backends("cpu")
def test_what_is_too_large_is_not_wrong_in_silence():
    x = normal((1, 40, 8), mx.float32, seed=13, std=3.5e18)  # whose squares add up to inf
    assert mx.isnan(mlx_norms.group_norm(x, 2)).all()


# Of 20 channels, and the group of channel 6.
NORMS = [
    (lambda *a: mlx_norms.group_norm(a[0], 4, *a[1:]), [2, 6, 10, 14, 18]),
    (
        lambda *a: mlx_norms.group_norm(
            a[0], 4, *a[1:], pytorch_compatible=True, activation="gelu"
        ),
        [5, 6, 7, 8, 9],
    ),
    (mlx_norms.instance_norm, [6]),
]


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf")])
def test_what_is_not_finite_stays_in_its_group(value):
    for dtype, (norm, group), position in itertools.product(DTYPES, NORMS, (0, 17, 39)):
        x, g = (normal((2, 40, 20), dtype, seed=s) for s in "xg")
        parameters = list(parameters_of(20, dtype).values())
        bad = mx.array(x)
        bad[1, position, 6] = value
        others = mx.array([c for c in range(20) if c not in group])
        for got, expected in zip(
            values_and_gradients(norm, bad, parameters, g),
            values_and_gradients(norm, x, parameters, g),
            strict=True,
        ):
            assert mx.isnan(got[1][:, mx.array(group)]).all()
            assert_same_bits(got[1][:, others], expected[1][:, others])
            assert_same_bits(got[0], expected[0])


def values_and_gradients(norm, x, parameters, cotangent):
    outputs, gradients = mx.vjp(lambda x: norm(x, *parameters), [x], [cotangent])
    return *outputs, *gradients


def test_a_sample_does_not_depend_on_the_others():
    for dtype, (positions, channels) in itertools.product(DTYPES, ((7, 12), (700, 32))):
        x = normal((5, positions, channels), dtype, seed=6)
        for options in (dict(num_groups=4), dict(num_groups=4, pytorch_compatible=True)):
            whole = mlx_norms.group_norm(x, **options)
            assert mx.array_equal(whole[3:4], mlx_norms.group_norm(x[3:4], **options))


def test_close_to_the_layers_of_mlx():
    x = normal((2, 6, 6, 32), mx.float32, seed=7)
    p = parameters_of(32, mx.float32)
    for torch in (False, True):
        layer = mlx.nn.GroupNorm(8, 32, pytorch_compatible=torch)
        layer.update(p)
        ours = mlx_norms.group_norm(x, 8, **p, pytorch_compatible=torch)
        assert mx.allclose(ours, layer(x), atol=1e-5)
    layer = mlx.nn.InstanceNorm(32, affine=True)
    layer.update(p)
    assert mx.allclose(mlx_norms.instance_norm(x, **p), layer(x), atol=1e-5)


def test_batch_norm_updates_as_mlx_does():
    for dtype, old in itertools.product(DTYPES, DTYPES):
        x = normal((4, 5, 6, 24), dtype, seed=8, mean=1.0)
        p = parameters_of(24, mx.float32, running=True)
        p["mean"], p["var"] = (p[n].astype(old) for n in ("mean", "var"))
        y, mean, var = mlx_norms.batch_norm(x, **p, training=True, momentum=0.3)
        assert y.dtype == dtype
        assert mean.dtype == var.dtype == result_type(dtype, old)
        layer = mlx.nn.BatchNorm(24, momentum=0.3)
        layer.running_mean, layer.running_var = p["mean"], p["var"]
        layer(x)
        values = exact(x).reshape(-1, 24)
        tolerance = {mx.float32: 1e-6, mx.float16: 1e-3, mx.bfloat16: 1e-2}[mean.dtype]
        for new, old_one, now, theirs in (
            (mean, p["mean"], values.mean(0), layer.running_mean),
            (var, p["var"], values.var(0, ddof=1), layer.running_var),
        ):
            assert new.dtype == theirs.dtype
            np.testing.assert_allclose(
                exact(new), 0.7 * exact(old_one) + 0.3 * now, rtol=tolerance, atol=tolerance
            )


@since("0.32.1")  # whose mlx.nn has the unbiased variance
def test_gradients_of_the_new_statistics():
    x = normal((3, 4, 8), mx.float32, seed=9)
    p = list(parameters_of(8, mx.float32, running=True).values())

    def ours(x, mean, var):
        y, m, v = mlx_norms.batch_norm(x, *p[:2], mean=mean, var=var, training=True)
        return mx.sum(mx.sin(y)) + mx.sum(mx.sin(3 * m)) + mx.sum(mx.sin(2 * v))

    def theirs(x, mean, var):
        layer = mlx.nn.BatchNorm(8)
        layer.weight, layer.bias, layer.running_mean, layer.running_var = *p[:2], mean, var
        y = layer(x)
        return (
            mx.sum(mx.sin(y))
            + mx.sum(mx.sin(3 * layer.running_mean))
            + mx.sum(mx.sin(2 * layer.running_var))
        )

    for got, expected in zip(
        mx.grad(ours, (0, 1, 2))(x, *p[2:]), mx.grad(theirs, (0, 1, 2))(x, *p[2:]), strict=True
    ):
        assert mx.allclose(got, expected, atol=1e-5)
