"""The ops can be called as mx.fast's are, and have the defaults that are documented."""

import inspect

import mlx.core as mx
import pytest

import mlx_norms
from support.bits import assert_same_bits
from support.inputs import normal
from support.norm_case import DTYPES, OPS

pytestmark = pytest.mark.usefixtures("backend")


def arrays(dtype):
    x = normal((3, 64), dtype, seed=1)
    return x, normal((64,), dtype, seed=2), normal((64,), dtype, seed=3)


def test_positional_as_in_mx_fast():
    for dtype in DTYPES:
        x, w, b = arrays(dtype)
        for args in ((x, w, 1e-5), (x, None, 1e-5)):
            near(mlx_norms.rms_norm(*args), mx.fast.rms_norm(*args))
            near(mlx_norms.rms_norm(*args, stream=mx.cpu), mx.fast.rms_norm(*args))
        for args in (
            (x, w, b, 1e-5),
            (x, None, None, 1e-5),
            (x, w, None, 1e-5),
            (x, None, b, 1e-5),
        ):
            near(mlx_norms.layer_norm(*args), mx.fast.layer_norm(*args))


def near(got, expected):
    assert (got.dtype, got.shape) == (expected.dtype, expected.shape)
    unit = {mx.float32: 2e-6, mx.float16: 2e-3, mx.bfloat16: 2e-2}[got.dtype]
    error = mx.abs(got.astype(mx.float32) - expected.astype(mx.float32))
    assert mx.all(error <= unit * (1 + mx.abs(expected.astype(mx.float32))))


def test_keywords_as_in_mx_fast():
    x, w, b = arrays(mx.float32)
    assert_same_bits(mlx_norms.rms_norm(x=x, weight=w, eps=1e-3), mlx_norms.rms_norm(x, w, 1e-3))
    assert_same_bits(
        mlx_norms.layer_norm(x=x, weight=w, bias=b, eps=1e-3), mlx_norms.layer_norm(x, w, b, 1e-3)
    )


def test_defaults():
    x, w, b = arrays(mx.float16)
    x = x * 0.003
    same = [
        (mlx_norms.rms_norm(x), mlx_norms.rms_norm(x, None, 1e-5)),
        (mlx_norms.rms_norm(x, w), mlx_norms.rms_norm(x, w, 1e-5)),
        (mlx_norms.layer_norm(x), mlx_norms.layer_norm(x, None, None, 1e-5)),
        (mlx_norms.layer_norm(x, w), mlx_norms.layer_norm(x, w, None, 1e-5)),
        *zip(mlx_norms.add_rms_norm(x, x), mlx_norms.add_rms_norm(x, x, None, 1e-5), strict=True),
        *zip(
            mlx_norms.add_rms_norm(x, x, w),
            mlx_norms.add_rms_norm(x, x, w, 1e-5, clamp=False),
            strict=True,
        ),
        *zip(
            mlx_norms.add_layer_norm(x, x),
            mlx_norms.add_layer_norm(x, x, None, None, 1e-5),
            strict=True,
        ),
        *zip(
            mlx_norms.add_layer_norm(x, x, w, b),
            mlx_norms.add_layer_norm(x, x, w, b, 1e-5),
            strict=True,
        ),
    ]
    for got, expected in same:
        assert_same_bits(got, expected)
    assert not mx.array_equal(mlx_norms.rms_norm(x), mlx_norms.rms_norm(x, None, 1e-6))


def test_two_outputs_are_a_tuple():
    x, w, b = arrays(mx.float32)
    heads = x.reshape(3, 2, 32)
    for out in (
        mlx_norms.add_rms_norm(x, x, w),
        mlx_norms.add_layer_norm(x, x, w, b),
        mlx_norms.qk_norm(heads, heads, None, None, 1e-5),
    ):
        assert type(out) is tuple and [type(o) for o in out] == [mx.array, mx.array]


@pytest.mark.parametrize("name", [*OPS, "head_rms_norm", "head_layer_norm", "qk_norm"])
def test_docstring(name):
    text = inspect.getdoc(getattr(mlx_norms, name))
    assert text.startswith(f"{name}(")
    for part in (
        "Args:",
        "Returns:",
        "Raises:",
        "eps",
        "weight_offset",
        "rounding",
        "dtype",
        "stream",
    ):
        assert part in text, f"{name}: {part}"


@pytest.mark.parametrize("name", ["layer_norm", "sgemm"])
def test_docstring_of_a_ladder(name):
    text = inspect.getdoc(getattr(mlx_norms.ladders, name))
    assert text.startswith(f"{name}_by_rung(")
    for part in (f"ladders.{name.upper()}", "Args:", "Returns:", "Raises:", "rung", "stream"):
        assert part in text, f"{name}: {part}"
