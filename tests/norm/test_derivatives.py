"""Forward mode and second derivatives against float64 finite differences."""

import itertools
from functools import partial

import mlx.core as mx
import numpy as np
import pytest

from support import oracle
from support.bits import assert_same_bits
from support.inputs import arguments, cotangents, normal
from support.norm_case import DTYPES, OPS, Norm

pytestmark = pytest.mark.usefixtures("backend")

STEP = 1e-5


def value64(norm, a):
    """Outputs of the op on float64 arrays."""
    s = a["x"] + a["residual"] if norm.adds else a["x"]
    y, _ = oracle.statistics(norm, s)
    if "weight" in a:
        y = y * (a["weight"] + norm.weight_offset)
    if "bias" in a:
        y = y + a["bias"]
    return [y, s] if norm.adds else [y]


def loss(outputs, weights):
    """A loss with a curvature of its own: half the weighted squares of every output."""
    return sum((0.5 * w * o * o).sum() for o, w in zip(outputs, weights, strict=True))


def gradient64(norm, a, weights):
    """Gradients of the loss of the op, in float64."""
    out = value64(norm, a)
    s = a["x"] + a["residual"] if norm.adds else a["x"]
    cots = [w * o for w, o in zip(weights, out, strict=True)]
    values, _ = oracle.gradient_values(norm, s, a.get("weight"), *cots)
    return {n: values["s" if n in ("x", "residual") else n] for n in a}


def central(f, a, tangents):
    """Derivative of f, a list of arrays, along the tangents."""
    up, down = (
        f({n: v + h * tangents[n] if n in tangents else v for n, v in a.items()})
        for h in (STEP, -STEP)
    )
    return [(u - d) / (2 * STEP) for u, d in zip(up, down, strict=True)]


def assert_close(got, truth, unit, note):
    """To within 32 units of the largest value of each row, that is of the sums it is made of."""
    __tracebackhide__ = True
    size = np.abs(truth).max(axis=-1, keepdims=True, initial=0.0)
    error = np.abs(oracle.exact(got) - truth)
    worst = (error / np.maximum(size, 1e-3)).max(initial=0.0)
    assert worst <= 32 * unit, f"{note}: off by {worst / unit:.3g} units of the row's largest"


def of(norm, arrays, names, *free):
    """The op as a function of the arrays named, with the others held."""
    return norm(arrays | dict(zip(names, free, strict=True)))


def subsets(names):
    for k in range(1, len(names) + 1):
        yield from itertools.combinations(names, k)


def float32_case(op, shape=(3, 33), **options):
    norm = Norm(op, **options)
    arrays = arguments(norm, shape, mx.float32)
    exact = {n: oracle.exact(a) for n, a in arrays.items()}
    tangents = {n: normal(a.shape, a.dtype, seed=(7, i)) for i, (n, a) in enumerate(arrays.items())}
    return norm, arrays, exact, tangents


U32 = oracle.unit_roundoff(mx.float32)


@pytest.mark.parametrize("options", [{}, dict(weight_offset=1.0), dict(eps=0.1)], ids=str)
@pytest.mark.parametrize("op", OPS)
def test_jvp(op, options):
    """With respect to any subset of the arguments."""
    for shape in ((3, 33), (2, 3, 64), (7,), (2, 5)):
        norm, arrays, exact, tangents = float32_case(op, shape, **options)
        for names in subsets(norm.arguments):
            f = partial(of, norm, arrays, names)
            outputs, derivatives = mx.jvp(
                f, [arrays[n] for n in names], [tangents[n] for n in names]
            )
            for a, b in zip(outputs, norm(arrays), strict=True):
                assert_same_bits(a, b, f"{op} in jvp")
            some = {n: oracle.exact(tangents[n]) for n in names}
            truths = central(partial(value64, norm), exact, some)
            for got, truth in zip(derivatives, truths, strict=True):
                assert_close(got, truth, U32, f"{op} {shape} along {names}")


@pytest.mark.parametrize("op", OPS)
def test_jvp_of_long_rows(op):
    for shape in ((2, 1025), (2, 8192), (1, 65536)):
        norm, arrays, exact, tangents = float32_case(op, shape)
        _, got = mx.jvp(norm.function(list(arrays)), list(arrays.values()), list(tangents.values()))
        along_all = {n: oracle.exact(t) for n, t in tangents.items()}
        truths = central(partial(value64, norm), exact, along_all)
        for g, truth in zip(got, truths, strict=True):
            assert_close(g, truth, U32, f"{op} {shape}")


@pytest.mark.parametrize("op", OPS)
def test_jvp_in_16_bits(op):
    for dtype, (x, weight) in itertools.product(DTYPES, itertools.product(DTYPES, repeat=2)):
        norm = Norm(op, dtype=dtype)
        arrays = arguments(norm, (3, 65), x, others={"weight": weight})
        tangents = {
            n: normal(a.shape, a.dtype, seed=(7, i)) for i, (n, a) in enumerate(arrays.items())
        }
        f = norm.function(list(arrays))
        outputs, got = mx.jvp(f, list(arrays.values()), list(tangents.values()))
        exact = {n: oracle.exact(a) for n, a in arrays.items()}
        exact_tangents = {n: oracle.exact(t) for n, t in tangents.items()}
        truths = central(partial(value64, norm), exact, exact_tangents)
        for g, o, truth in zip(got, outputs, truths, strict=True):
            assert g.dtype == o.dtype
            narrow = max(oracle.unit_roundoff(d) for d in (dtype, x))
            assert_close(g, truth, narrow / 4, f"{op} {x} {weight} to {dtype}")


def total(norm, weights, *args):
    return loss(norm.function(norm.arguments)(*args), weights).astype(mx.float32)


def gradient_of(norm, weights):
    argnums = list(range(len(norm.arguments)))
    return mx.grad(partial(total, norm, weights), argnums=argnums)


def along(gradient, tangents, *args):
    """The gradient of the loss along tangents, whose gradient is the Hessian times those."""
    pairs = zip(gradient(*args), tangents, strict=True)
    return sum((g.astype(mx.float32) * t.astype(mx.float32)).sum() for g, t in pairs)


def hessian_products(norm, arrays, tangents, weights):
    """The Hessian of the loss times the tangents, in float64."""
    weights = [oracle.exact(w) for w in weights]
    return central(
        lambda a: list(gradient64(norm, a, weights).values()),
        {n: oracle.exact(a) for n, a in arrays.items()},
        {n: oracle.exact(t) for n, t in tangents.items()},
    )


@pytest.mark.parametrize("op", OPS)
def test_forward_over_reverse_and_reverse_over_forward(op):
    norm, arrays, _, tangents = float32_case(op)
    weights = cotangents(norm, arrays, seed=3)
    truths = hessian_products(norm, arrays, tangents, weights)
    args, tangents = list(arrays.values()), list(tangents.values())
    _, got = mx.jvp(gradient_of(norm, weights), args, tangents)
    for name, g, truth in zip(norm.arguments, got, truths, strict=True):
        assert_close(g, truth, U32, f"{op} jvp of grad, {name}")

    def slope(*args):
        outputs, derivatives = mx.jvp(norm.function(norm.arguments), list(args), tangents)
        return sum((w * o * d).sum() for w, o, d in zip(weights, outputs, derivatives, strict=True))

    got = mx.grad(slope, argnums=list(range(len(args))))(*args)
    for name, g, truth in zip(norm.arguments, got, truths, strict=True):
        assert_close(g, truth, U32, f"{op} grad of jvp, {name}")


@pytest.mark.parametrize("op", OPS)
def test_third_derivative(op):
    """Along one line, by central differences of the second."""
    norm, arrays, exact, tangents = float32_case(op, (1, 17))
    weights = cotangents(norm, arrays, seed=3)
    weights64 = [oracle.exact(w) for w in weights]
    names = list(arrays)

    def line(t):
        return loss(norm({n: arrays[n] + t * tangents[n] for n in names}), weights)

    third = mx.grad(mx.grad(mx.grad(line)))(mx.array(0.0))
    h = 1e-3
    line64 = {n: oracle.exact(tangents[n]) for n in names}

    def slope(t):
        at = {n: exact[n] + t * line64[n] for n in names}
        return sum((g * line64[n]).sum() for n, g in gradient64(norm, at, weights64).items())

    expected = (slope(h) - 2 * slope(0.0) + slope(-h)) / h**2
    np.testing.assert_allclose(third.item(), expected, rtol=1e-3)


@pytest.mark.parametrize("op", OPS)
def test_second_derivative_in_16_bits(op):
    """Of the input's dtype, and as near as 16 bits allow."""
    norm = Norm(op)
    for dtype in DTYPES[1:]:
        arrays = arguments(norm, (3, 33), dtype)
        tangents = {
            n: normal(a.shape, dtype, seed=(7, i)) for i, (n, a) in enumerate(arrays.items())
        }
        weights = cotangents(norm, arrays, seed=3)
        f = partial(along, gradient_of(norm, weights), tangents.values())
        got = mx.grad(f, argnums=list(range(len(arrays))))(*arrays.values())
        truths = hessian_products(norm, arrays, tangents, weights)
        for (name, a), g, truth in zip(arrays.items(), got, truths, strict=True):
            assert g.dtype == a.dtype
            assert_close(g, truth, oracle.unit_roundoff(dtype) / 4, f"{op} {dtype} {name}")
