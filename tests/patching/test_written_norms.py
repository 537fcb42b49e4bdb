"""Norms that models write themselves: recognized however they are written, and computed by ours."""

import itertools

import mlx.core as mx
import numpy as np
import pytest

import mlx_norms
from support.inputs import normal
from support.norm_case import DTYPES
from support.written_norms import FORMS

pytestmark = pytest.mark.usefixtures("backend")

# Relative to the largest value, of results that are rounded at most twice.
BOUNDS = {mx.float32: 2e-6, mx.float16: 1.2e-3, mx.bfloat16: 9e-3}
TRANSFORMS = {
    "plain": lambda f: f,
    "compile": lambda f: mx.compile(f),
    "shapeless": lambda f: mx.compile(f, shapeless=True),
    "checkpoint": lambda f: mx.checkpoint(f),
    "vmap": lambda f: lambda x, *ps: mx.vmap(lambda x: f(x, *ps))(mx.stack([x, x]))[0],
}


def named(form):
    return form.name


forms = pytest.mark.parametrize("form", FORMS, ids=named)
dtypes = pytest.mark.parametrize("dtype", DTYPES, ids=str)


def exact(a):
    return np.array(a.astype(mx.float32)).astype(np.float64)


def in_float64(form, arrays, function=None):
    """What the form, or a function of it and its arrays, is in float64."""
    with mx.stream(mx.cpu):
        wide = [a.astype(mx.float64) for a in arrays]
        names = list(form.parameters)

        def compute(x, *parameters):
            return form.exact(x, **dict(zip(names, parameters, strict=True)))

        result = function(compute)(*wide) if function else compute(*wide)
        return [np.array(a) for a in (result if isinstance(result, (list, tuple)) else [result])]


def arrays_of(form, layer, x):
    return [x, *(layer[name] for name in form.parameters)]


def error(got, expected):
    assert got.shape == expected.shape
    return np.max(np.abs(exact(got) - expected)) / np.max(np.abs(expected))


def written(form):
    return mlx_norms.report().written.get(form.op, 0)


def patched(layer, x):
    with mlx_norms.patched():
        y = layer(x)
        mx.eval(y)
        assert written(form_of(layer)) == form_of(layer).inline
    return y


def form_of(layer):
    return next(form for form in FORMS if form.call is type(layer).__call__)


@forms
@dtypes
def test_a_call(form, dtype):
    layer, x = form.layer(dtype), form.x(dtype)
    stock = layer(x)
    y = patched(layer, x)
    assert (y.dtype, y.shape) == (stock.dtype, stock.shape)
    [expected] = in_float64(form, arrays_of(form, layer, x))
    ours = error(y, expected)
    assert ours <= BOUNDS[dtype]
    # As accurate as the code, up to one rounding of the other operations.
    assert ours <= error(stock, expected) + BOUNDS[dtype] / 8


@pytest.mark.parametrize("form", [form for form in FORMS if form.wide], ids=named)
@pytest.mark.parametrize("dtype", DTYPES[1:], ids=str)
def test_casts_are_where_the_code_has_them(form, dtype):
    """16 bits that the code rounds once or twice, of what it computes in float32, are the same."""
    layer, x = form.layer(dtype), form.x(dtype)
    stock, y = layer(x), patched(layer, x)
    different = np.mean(exact(y) != exact(stock))
    # The few are of float32 results between two values of 16 bits.
    assert different <= 0.01


def of_each_transform():
    """All dtypes plain, and one of them in turn by another transform, which knows none of them."""
    for (i, form), (j, transform) in itertools.product(enumerate(FORMS), enumerate(TRANSFORMS)):
        for k, dtype in enumerate(DTYPES):
            if transform == "plain" or (i + j) % len(DTYPES) == k:
                yield pytest.param(form, dtype, transform, id=f"{form.name}-{dtype}-{transform}")


@pytest.mark.parametrize("form, dtype, transform", list(of_each_transform()))
def test_gradients(form, dtype, transform):
    layer, x = form.layer(dtype), form.x(dtype)
    cotangent = normal(x.shape, dtype, seed="cotangent")
    names = list(form.parameters)

    def call(x, *parameters):
        dict.update(layer, zip(names, parameters, strict=True))
        return layer(x)

    arrays = arrays_of(form, layer, x)
    stock = mx.vjp(lambda *a: [call(*a)], arrays, [cotangent])[1]
    mx.eval(stock)
    with mlx_norms.patched():
        [y], gradients = mx.vjp(lambda *a: [TRANSFORMS[transform](call)(*a)], arrays, [cotangent])
        assert written(form) >= form.inline
    [expected] = in_float64(form, arrays)
    assert error(y, expected) <= BOUNDS[dtype]

    def gradients_of(compute):
        return lambda *a: mx.vjp(compute, list(a), [cotangent.astype(mx.float64)])[1]

    truth = in_float64(form, arrays, gradients_of)
    for ours, theirs, wanted in zip(gradients, stock, truth, strict=True):
        # What follows the norm may be MLX's own sum in 16 bits.
        assert error(ours, wanted) <= max(2 * BOUNDS[dtype], error(theirs, wanted))


@forms
def test_weights_of_another_dtype(form):
    layer, x = form.layer(mx.float32), form.x(mx.bfloat16)
    stock, y = layer(x), patched(layer, x)
    assert y.dtype == stock.dtype
    [expected] = in_float64(form, arrays_of(form, layer, x))
    assert error(y, expected) <= BOUNDS[mx.bfloat16]


def test_a_pending_sum_is_fused():
    form = FORMS[0]
    layer, x, r = form.layer(), form.x(), normal(form.shape, mx.float32, seed="residual")
    with mlx_norms.patched():
        h = x + r
        y = layer(h)
        mx.eval(h, y)
        assert mlx_norms.report().fused == written(form) == 1
    assert mx.array_equal(h, x + r, stream=mx.cpu)
    [expected] = in_float64(form, arrays_of(form, layer, x + r))
    assert error(y, expected) <= BOUNDS[mx.float32]
