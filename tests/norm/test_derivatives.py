"""Forward mode and second derivatives against those of the table's values in float64."""

import itertools

import mlx.core as mx
import numpy as np
import pytest

from support import oracle
from support.bits import assert_same_bits
from support.inputs import arguments, cotangents, normal
from support.norm_case import DTYPES, OPS, Norm

pytestmark = pytest.mark.usefixtures("backend")


def loss(outputs, weights):
    """A loss with a curvature of its own: half the weighted squares of every output."""
    return sum((0.5 * w * o * o).sum() for o, w in zip(outputs, weights, strict=True))


def in_float64(derivative, f, norm, arrays, *more):
    """A derivative of a function of the op, of the same in float64."""
    op = oracle.op_of(norm, dict(zip(norm.arguments, arrays, strict=True)))
    with mx.stream(mx.cpu):
        return derivative(
            f(op.values()), *([a.astype(mx.float64) for a in of] for of in (arrays, *more))
        )


def assert_close(got, truth, unit, note):
    """To within 32 units of the largest value of each row, that is of the sums it is made of."""
    __tracebackhide__ = True
    truth = np.array(truth)
    size = np.abs(truth).max(axis=-1, keepdims=True, initial=0.0)
    error = np.abs(oracle.exact(got) - truth)
    worst = (error / np.maximum(size, 1e-3)).max(initial=0.0)
    assert worst <= 32 * unit, f"{note}: off by {worst / unit:.3g} units of the row's largest"


def case(norm, shape, dtype, **others):
    """Arrays and tangents."""
    arrays = list(arguments(norm, shape, dtype, others=others).values())
    return arrays, [normal(a.shape, a.dtype, seed=(7, i)) for i, a in enumerate(arrays)]


def check_tangents(norm, arrays, tangents, unit, note):
    __tracebackhide__ = True
    outputs, got = mx.jvp(norm.function(norm.arguments), arrays, tangents)
    truths = in_float64(mx.jvp, lambda f: f, norm, arrays, tangents)[1]
    for g, o, truth in zip(got, outputs, truths, strict=True):
        assert g.dtype == o.dtype
        assert_close(g, truth, unit, f"{norm} {note}")


U32 = oracle.unit_roundoff(mx.float32)


@pytest.mark.parametrize("options", [{}, dict(weight_offset=1.0), dict(eps=0.1)], ids=str)
@pytest.mark.parametrize("op", OPS)
def test_jvp(op, options):
    """With respect to any subset of the arguments."""
    norm = Norm(op, **options)
    for shape in ((3, 33), (2, 3, 64), (7,), (2, 5)):
        arrays, tangents = case(norm, shape, mx.float32)
        plain = norm(dict(zip(norm.arguments, arrays, strict=True)))
        for chosen in itertools.product((False, True), repeat=len(arrays)):
            some = [i for i, of in enumerate(chosen) if of] or [0]

            def f(*free, some=some, arrays=arrays):
                given = list(arrays)
                for i, a in zip(some, free, strict=True):
                    given[i] = a
                return norm(dict(zip(norm.arguments, given, strict=True)))

            zeroed = [t if i in some else 0 * t for i, t in enumerate(tangents)]
            truths = in_float64(mx.jvp, lambda f: f, norm, arrays, zeroed)[1]
            outputs, got = mx.jvp(f, [arrays[i] for i in some], [tangents[i] for i in some])
            for a, b, g, truth in zip(outputs, plain, got, truths, strict=True):
                assert_same_bits(a, b, f"{op} in jvp")
                assert_close(g, truth, U32, f"{op} {shape} along {some}")


@pytest.mark.parametrize("op", OPS)
def test_jvp_of_long_rows(op):
    for shape in ((2, 1025), (2, 8192), (1, 65536)):
        check_tangents(Norm(op), *case(Norm(op), shape, mx.float32), U32, shape)


@pytest.mark.parametrize("op", OPS)
def test_jvp_in_16_bits(op):
    for dtype, x, weight in itertools.product(DTYPES, repeat=3):
        norm = Norm(op, dtype=dtype)
        unit = max(oracle.unit_roundoff(d) for d in (dtype, x)) / 4
        check_tangents(norm, *case(norm, (3, 65), x, weight=weight), unit, f"{x} {weight}")


def gradient_of(f, weights):
    """Of a loss of the op, with respect to all arguments, as a list."""
    return lambda *args: mx.vjp(
        lambda *a: [loss(f(*a), weights).astype(weights[0].dtype)],
        list(args),
        [mx.array(1.0, weights[0].dtype)],
    )[1]


def hessian_products(norm, arrays, tangents, weights):
    """The Hessian of the loss times the tangents, in float64."""
    weights = [w.astype(mx.float64, stream=mx.cpu) for w in weights]
    return in_float64(mx.jvp, lambda f: gradient_of(f, weights), norm, arrays, tangents)[1]


@pytest.mark.parametrize("op", OPS)
def test_forward_over_reverse_and_reverse_over_forward(op):
    norm = Norm(op)
    arrays, tangents = case(norm, (3, 33), mx.float32)
    weights = cotangents(norm, dict(zip(norm.arguments, arrays, strict=True)), seed=3)
    truths = hessian_products(norm, arrays, tangents, weights)
    f = norm.function(norm.arguments)
    _, got = mx.jvp(gradient_of(f, weights), arrays, tangents)

    def slope(*args):
        outputs, derivatives = mx.jvp(f, list(args), tangents)
        return sum((w * o * d).sum() for w, o, d in zip(weights, outputs, derivatives, strict=True))

    back = mx.grad(slope, argnums=list(range(len(arrays))))(*arrays)
    for name, forward, backward, truth in zip(norm.arguments, got, back, truths, strict=True):
        assert_close(forward, truth, U32, f"{op} jvp of grad, {name}")
        assert_close(backward, truth, U32, f"{op} grad of jvp, {name}")


@pytest.mark.parametrize("op", OPS)
def test_third_derivative(op):
    """Along one line."""
    norm = Norm(op)
    arrays, tangents = case(norm, (1, 17), mx.float32)
    weights = cotangents(norm, dict(zip(norm.arguments, arrays, strict=True)), seed=3)

    def third(f, arrays, tangents, weights):
        def line(t):
            return loss(f(*(a + t * of for a, of in zip(arrays, tangents, strict=True))), weights)

        return mx.grad(mx.grad(mx.grad(line)))(mx.array(0.0, arrays[0].dtype)).item()

    got = third(norm.function(norm.arguments), arrays, tangents, weights)
    expected = in_float64(third, lambda f: f, norm, arrays, tangents, weights)
    np.testing.assert_allclose(got, expected, rtol=1e-3)


@pytest.mark.parametrize("op", OPS)
def test_second_derivative_in_16_bits(op):
    """Of the input's dtype, and as near as 16 bits allow."""
    norm = Norm(op)
    for dtype in DTYPES[1:]:
        arrays, tangents = case(norm, (3, 33), dtype)
        weights = cotangents(norm, dict(zip(norm.arguments, arrays, strict=True)), seed=3)

        def along(*args, tangents=tangents, weights=weights):
            gradients = mx.grad(
                lambda *a: loss(norm.function(norm.arguments)(*a), weights).astype(mx.float32),
                argnums=list(range(len(args))),
            )(*args)
            pairs = zip(gradients, tangents, strict=True)
            return sum((g.astype(mx.float32) * t.astype(mx.float32)).sum() for g, t in pairs)

        got = mx.grad(along, argnums=list(range(len(arrays))))(*arrays)
        truths = hessian_products(norm, arrays, tangents, weights)
        for name, a, g, truth in zip(norm.arguments, arrays, got, truths, strict=True):
            assert g.dtype == a.dtype
            assert_close(g, truth, oracle.unit_roundoff(dtype) / 4, f"{op} {dtype} {name}")
