"""rms_norm_linear and layer_norm_linear: one launch, or two steps, against float64."""

import inspect
import itertools
import re

import mlx.core as mx
import mlx.nn as nn
import numpy as np
import pytest

import mlx_norms
from support import oracle
from support.bits import assert_same_bits
from support.inputs import in_turn, normal
from support.linear_case import (
    OPS,
    Quantized,
    case,
    is_apart_on_metal,
    matrix,
    most_rows,
    truths,
)
from support.norm_case import DTYPES
from support.oracle import Truth, exact, unit_roundoff
from support.releases import since

pytestmark = pytest.mark.usefixtures("backend")

FEW = 8
KINDS = list(itertools.product((4, 8), (32, 64, 128)))


@pytest.fixture
def one_launch(backend):
    """Whether a call of so many rows, all arrays of one dtype, is one launch."""

    def one_launch(rows, op="rms_norm_linear", kind=None):
        if backend == "cpu" or (backend.startswith("metal") and is_apart_on_metal(op, kind)):
            return False
        return 0 < rows <= most_rows(None)

    return one_launch


@pytest.fixture
def check(one_launch):
    """Values of every output."""

    def check(call, outputs=None, note="", one=None):
        __tracebackhide__ = True
        x = call.arrays["x"]
        if one is None:
            kind = isinstance(call.weights[0], Quantized) or None
            one = one_launch(x.size // max(x.shape[-1], 1), call.op, kind)
        outputs = call() if outputs is None else outputs
        for truth, got in zip(truths(call, one), outputs, strict=True):
            truth.check(got, note)

    return check


# --- Values

# Row length and width: about a SIMD-group, a vector of it, and what no power of two divides.
SIZES = (
    *((1, 1), (2, 3), (7, 5), (31, 2), (32, 8), (33, 4), (63, 1), (64, 9), (65, 7)),
    *((127, 3), (128, 4), (129, 6), (255, 5), (257, 2), (511, 4), (513, 3), (1000, 2)),
)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("op", OPS)
def test_sizes(check, op, dtype):
    for i, (length, width) in enumerate(SIZES):
        check(case(op, (1 + i % FEW, length), (width,), dtype, seed=i))


@pytest.mark.parametrize("op", OPS)
def test_rows(check, op):
    for rows, dtype in itertools.product((*range(1, 10), 33), DTYPES):
        check(case(op, (rows, 100), (7,), dtype, biases=(rows % 2 == 0,), seed=rows))


@pytest.mark.parametrize("kind", [None, (4, 64), (8, 32)])
@pytest.mark.parametrize("op", OPS)
def test_long_rows(check, op, kind):
    """Which are shared by several SIMD-groups."""
    for (length, dtype), rows in itertools.product(zip((2048, 4096, 8192), DTYPES), (1, 3)):
        options = dict(kinds=(kind,), residual=rows == 1, biases=(True, False))
        check(case(op, (rows, length), (5, 2), dtype, **options))
        check(case(op, (rows, length), (3, 3), dtype, kinds=(kind,), gated=True))
    if kind is None:
        check(case(op, (8, 4099), (3,), mx.float32))


@pytest.mark.parametrize("op", OPS)
def test_a_wide_projection(check, op):
    check(case(op, (3, 64), (1030,), mx.bfloat16))


@pytest.mark.parametrize(("bits", "group"), KINDS)
@pytest.mark.parametrize("op", OPS)
def test_quantized(check, op, bits, group):
    sizes = [(group, 5), (2 * group, 1), (3 * group, 33), (5 * group, 4)]
    for i, (length, width) in enumerate(sizes):
        for dtype in in_turn(DTYPES, i):
            rows = (1, 3, 8, 9)[i]
            check(case(op, (rows, length), (width,), dtype, kinds=((bits, group),), seed=i))


@pytest.mark.parametrize("n", [1, 2, 3, 4])
@pytest.mark.parametrize("op", OPS)
def test_several_weights(check, op, n):
    widths = (9, 4, 1, 17)[:n]
    kinds = zip((None, (4, 64), (8, 32)), DTYPES, strict=True)
    for (kind, dtype), rows in itertools.product(kinds, (2, 9)):
        check(case(op, (rows, 128), widths, dtype, kinds=(kind,), biases=(True, False)))


@pytest.mark.parametrize("op", OPS)
def test_weights_of_several_kinds(check, op):
    for dtype, kinds in itertools.product(DTYPES, ((None, (4, 64)), ((4, 64), (8, 64), (4, 32)))):
        check(case(op, (2, 128), (5, 6, 7), dtype, kinds=kinds), one=False)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("kind", [None, (4, 32), (8, 64)])
@pytest.mark.parametrize("op", OPS)
def test_options(check, op, kind, dtype):
    options = [dict(residual=True), dict(biases=(True,)), dict(gated=True)]
    options += [dict(residual=True, gated=True, biases=(True, False)), dict(eps=0.1)]
    options += [dict(without=("norm_weight", "norm_bias")), dict(without=("norm_weight",))]
    if op == "rms_norm_linear":
        options += [dict(weight_offset=1.0), dict(weight_offset=-0.25, residual=True)]
    for option, rows in itertools.product(options, (1, 5, 9)):
        widths = (6, 6) if option.get("gated") else (6,)
        check(case(op, (rows, 64), widths, dtype, kinds=(kind,), **option), note=str(option))


@pytest.mark.parametrize("kind", [None, (8, 64)])
def test_layer_norm_of_rows_with_a_large_mean(check, kind):
    for length, residual, rows in itertools.product((64, 576), (False, True), (1, 4, 9)):
        for mean, std in ((1e4, 0.5), (-1e4, 0.01), (1e4, 1.0)):
            spread = dict(mean=mean, std=std, residual=residual, kinds=(kind,))
            op = "layer_norm_linear"
            check(case(op, (rows, length), (5,), mx.float32, biases=(True,), **spread))
    for dtype in DTYPES[1:]:
        check(case("layer_norm_linear", (2, 320), (5,), dtype, mean=1e3, std=10, kinds=(kind,)))


@pytest.mark.parametrize("op", OPS)
def test_values_about_the_root_of_eps(check, op):
    check(case(op, (3, 65), (5,), mx.float32, std=3e-3))
    check(case(op, (3, 65), (5,), mx.float32, std=0.0))


def test_dtypes_that_differ(check):
    names = ("x", "residual", "norm_weight", "weight", "bias")
    for i, dtypes in enumerate(itertools.product(DTYPES, repeat=3)):
        others = {name: dtypes[(i + j) % 3] for j, name in enumerate(names)}
        for kind, residual in ((None, i % 2 == 0), ((4, 32), i % 2 == 1)):
            call = case(
                "rms_norm_linear",
                *((2, 64), (5,), dtypes[0]),
                kinds=(kind,),
                others=others,
                residual=residual,
                biases=(True,),
            )
            check(call, one=False)


def test_any_number_of_axes(check):
    for shape in [(33,), (1, 1, 33), (2, 3, 33), (2, 1, 3, 33), (3, 4, 33)]:
        for op, residual in itertools.product(OPS, (False, True)):
            check(case(op, shape, (5, 2), mx.float32, residual=residual))
    check(case("rms_norm_linear", (64,), (5,), mx.float16, kinds=((4, 32),)))


def test_no_rows_and_no_width(check):
    for op, residual in itertools.product(OPS, (False, True)):
        check(case(op, (0, 33), (5,), mx.float32, residual=residual, biases=(True,)))
        check(case(op, (2, 0, 33), (5, 2), mx.float16, residual=residual))
        check(case(op, (2, 33), (0, 3), mx.float32, residual=residual))
        check(case(op, (0, 64), (5,), mx.float16, kinds=((8, 32),), biases=(residual,)))


@pytest.mark.parametrize("kind", [None, (4, 32)])
def test_what_is_not_finite_stays_in_its_row(backend, kind):
    call = case("rms_norm_linear", (3, 64), (5,), mx.float32, kinds=(kind,))
    clean = call()[0]
    for bad in (np.nan, np.inf):
        x = np.array(call.arrays["x"])
        x[1, 40] = bad
        call.arrays["x"] = mx.array(x)
        got = call()[0]
        assert np.isnan(np.array(got[1])).all()
        assert_same_bits(got[::2], clean[::2])


# --- Beside mlx.nn and the two steps


@pytest.mark.parametrize("op", OPS)
def test_two_steps_have_the_bits_of_the_norm_and_the_product(one_launch, op):
    for dtype, kind, rows in itertools.product(DTYPES, (None, (4, 32), (8, 64)), (1, 9)):
        if one_launch(rows, op, kind):
            continue
        for options in (dict(), dict(gated=True, residual=True)):
            call = case(
                op, (rows, 64), (6, 6), dtype, kinds=(kind,), biases=(True, False), **options
            )
            for got, expected in zip(call(), call.two_steps(), strict=True):
                assert_same_bits(got, expected, str(call))


@pytest.mark.parametrize("kind", [None, (4, 64), (8, 32)])
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_layers_of_mlx_nn(dtype, kind):
    norms = {"rms_norm_linear": nn.RMSNorm(128), "layer_norm_linear": nn.LayerNorm(128)}
    for (op, norm), bias in itertools.product(norms.items(), (False, True)):
        linear = nn.Linear(128, 9, bias=bias)
        for module in (norm, linear):
            module.set_dtype(dtype)
        weight = linear.weight
        size = mx.abs(weight.astype(mx.float32)).sum(1)
        if kind:
            bits, group = kind
            linear = nn.QuantizedLinear.from_linear(linear, group, bits)
            weight = (linear.weight, linear.scales, linear.biases)
        x = normal((3, 128), dtype, seed=1)
        norm_parameters = [p for p in (norm.weight, norm.get("bias")) if p is not None]
        got = getattr(mlx_norms, op)(
            x, *norm_parameters, weight, norm.eps, biases=linear["bias"] if bias else None
        )
        expected = linear(norm(x))
        assert (got.dtype, got.shape) == (expected.dtype, expected.shape)
        # Both round the normalized values, of about 1, and the product.
        unit = unit_roundoff(dtype)
        error = mx.abs(got.astype(mx.float32) - expected.astype(mx.float32))
        assert mx.all(error <= 8 * unit * size), f"{op} {mx.max(error / size / unit)}"


def test_one_weight_is_no_list():
    x, w = normal((2, 64), mx.float32, seed=1), normal((64,), mx.float32, seed=2)
    dense, b = normal((5, 64), mx.float32, seed=3), normal((5,), mx.float32, seed=4)
    quantized = mx.quantize(dense, 32, 4)
    for weight in (dense, tuple(quantized), list(quantized)):
        y = mlx_norms.rms_norm_linear(x, w, weight, biases=b)
        (listed,) = mlx_norms.rms_norm_linear(x, w, [weight], biases=[b])
        assert_same_bits(y, listed)
        y, h = mlx_norms.rms_norm_linear(x, w, weight, residual=x)
        listed, again = mlx_norms.rms_norm_linear(x, w, [weight], residual=x)
        assert type(y) is mx.array and type(listed) is list
        assert_same_bits(y, listed[0])
        assert_same_bits(h, again)
        gated = mlx_norms.rms_norm_linear(x, w, [weight, weight], gated=True)
        assert type(gated) is mx.array
    # Three arrays, but none packed: three weights.
    assert len(mlx_norms.rms_norm_linear(x, w, (dense, dense, dense))) == 3


def test_defaults():
    x, w = normal((2, 64), mx.float32, seed=1) * 0.003, normal((64,), mx.float32, seed=2)
    W = normal((5, 64), mx.float32, seed=3)
    for got, expected in (
        (mlx_norms.rms_norm_linear(x, w, W), mlx_norms.rms_norm_linear(x, w, W, 1e-5)),
        (
            mlx_norms.layer_norm_linear(x, w, w, W),
            mlx_norms.layer_norm_linear(x, w, w, W, 1e-5, biases=None, gated=False),
        ),
    ):
        assert_same_bits(got, expected)
    other = mlx_norms.rms_norm_linear(x, w, W, 1e-6)
    assert not mx.array_equal(mlx_norms.rms_norm_linear(x, w, W), other)


# --- Launches


@pytest.mark.parametrize("kind", [(4, 32), (8, 64)])
def test_layer_norms_of_few_bits_are_apart_on_metal(launches, kind):
    call = case("layer_norm_linear", (1, 64), (5, 3), mx.float16, kinds=(kind,))
    (launch,) = launches(*call())  # MLX's products are not the device's
    assert not launch.kernel.startswith("norm_linear")


@pytest.mark.parametrize(
    "op, kind",
    [of for of in itertools.product(OPS, (None, (4, 32), (8, 64))) if not is_apart_on_metal(*of)],
)
def test_few_rows_take_one_launch(launches, op, kind):
    for dtype, widths in itertools.product(DTYPES, ((5,), (5, 3), (9, 4, 1), (1, 2, 3, 4))):
        for rows, residual in ((1, True), (8, False)):
            call = case(
                op,
                (rows, 64),
                widths,
                dtype,
                kinds=(kind,),
                residual=residual,
                biases=(True, False),
            )
            assert len(launches(*call())) == 1, str(call)
    gated = case(op, (2, 64), (7, 7), mx.float16, kinds=(kind,), gated=True, residual=True)
    assert len(launches(*gated())) == 1


def test_more_rows_take_a_norm(launches):
    call = case("rms_norm_linear", (9, 64), (5, 3), mx.float32)
    (launch,) = launches(*call())  # MLX's products are not the device's
    assert launch.kernel.startswith("norm")


def test_like_nodes_are_merged_and_others_are_not(launches):
    call = case("rms_norm_linear", (2, 64), (5,), mx.float32)

    def calls(*flat):
        other = call.of_flat(flat)
        other.options = dict(eps=0.5)
        return sum(c()[0] for c in (call.of_flat(flat), call.of_flat(flat), other))

    assert len(launches(mx.compile(calls)(*call.flat()))) == 2


# --- Transforms


def cotangents(call, outputs):
    return [normal(o.shape, o.dtype, seed=(i, "cotangent")) for i, o in enumerate(outputs)]


def differentiable(call):
    """Places of the arrays with a gradient: all but the packed ones."""
    return [i for i, a in enumerate(call.flat()) if a.dtype != mx.uint32]


def gradients_of(call, f):
    """Of f, a function of the call's arrays: its pullback, as a function of them and cotangents."""
    flat, free = call.flat(), differentiable(call)

    def of_free(*args):
        args = dict(zip(free, args, strict=True))
        return f(*(args.get(i, a) for i, a in enumerate(flat)))

    args = [flat[i] for i in free]
    return lambda cots: mx.vjp(of_free, args, list(cots))


@pytest.mark.parametrize("kind", [None, (4, 32)])
@pytest.mark.parametrize("op", OPS)
def test_vjp_is_that_of_the_two_steps(check, op, kind):
    for dtype, rows in itertools.product(DTYPES, (2, 9)):
        for options in (
            *(dict(residual=True, biases=(True, False)), dict(gated=True, biases=(True,))),
            *(dict(gated=True, residual=True), dict(biases=(True,))),
        ):
            call = case(op, (rows, 64), (6, 6), dtype, kinds=(kind,), **options)
            cots = cotangents(call, call())
            outputs, got = gradients_of(call, call)(cots)
            check(call, outputs)
            _, expected = gradients_of(call, call.two_steps)(cots)
            for a, b in zip(got, expected, strict=True):
                assert_same_bits(a, b, str(call))


@pytest.mark.parametrize("kind", [None, (4, 32), (8, 64)])
@pytest.mark.parametrize("op", OPS)
def test_gradients(op, kind):
    for dtype, residual in itertools.product(DTYPES, (False, True)):
        if kind and dtype != mx.float32:
            continue  # MLX sums them in 16 bits
        call = case(op, (5, 64), (6, 3), dtype, kinds=(kind,), residual=residual, biases=(True,))
        cots = cotangents(call, call())
        _, got = gradients_of(call, call)(cots)
        for truth, gradient in zip(gradient_truths(call, cots), got, strict=True):
            truth.check(gradient)


def gradient_truths(call, cots):
    """Of each array with a gradient, in order."""
    norm, arrays = call.norm, call.norm_arrays
    dtype = call.arrays["x"].dtype
    c = [exact(a) for a in cots]
    k = oracle.arithmetic(norm, {}) + 4 * unit_roundoff(dtype)
    g = g_size = 0
    of_weights, of_biases = [], []
    n = oracle.forward(norm, arrays)[0]
    for weight, cot in zip(call.weights, c):
        values, sizes = matrix(weight)
        g, g_size = g + cot @ values, g_size + np.abs(cot) @ sizes
        dw, dw_size = cot.T @ n.value, np.abs(cot).T @ n.size
        if isinstance(weight, Quantized):
            q, _, _ = weight.levels()
            for factor in (q, np.ones_like(q)):
                grouped = [
                    (a * factor).reshape(len(q), -1, weight.group_size).sum(2)
                    for a in (dw, dw_size)
                ]
                of_weights.append(grouped)
        else:
            of_weights.append((dw, dw_size))
        of_biases.append((cot.sum(0), np.abs(cot).sum(0)))
    gs = c[len(call.weights) :]
    cotangents, sizes = [g, *gs], [g_size, *map(np.abs, gs)]
    of_norm = oracle.gradient_values(norm, arrays, cotangents, sizes).values()
    pairs = [*of_norm, *of_weights, *of_biases]
    return [Truth(value, k * size, dtype, f"{call} {i}") for i, (value, size) in enumerate(pairs)]


@pytest.mark.parametrize("kind", [None, (4, 32)])
@pytest.mark.parametrize("op", OPS)
def test_jvp(check, op, kind):
    for dtype, options in itertools.product(
        DTYPES, (dict(residual=True), dict(gated=True, biases=(True,)))
    ):
        call = case(op, (3, 64), (6, 6), dtype, kinds=(kind,), **options)
        flat = call.flat()
        # MLX has no tangent of a quantized weight.
        n = len(call.arrays) if kind else len(flat)
        tangents = [normal(a.shape, a.dtype, seed=(i, "t")) for i, a in enumerate(flat[:n])]
        outputs, got = mx.jvp(lambda *args: call(*args, *flat[n:]), flat[:n], tangents)
        check(call, outputs)
        steps = mx.jvp(lambda *args: call.two_steps(*args, *flat[n:]), flat[:n], tangents)[1]
        for a, b in zip(got, steps, strict=True):
            assert_same_bits(a, b, str(call))


@pytest.mark.parametrize("op", OPS)
def test_vmap_of_rows(backend, check, op):
    for kind, residual in ((None, False), (None, True), ((4, 32), True)):
        if kind and backend == "cpu":
            continue  # MLX's quantized product has no vmap
        for batch, rows in ((2, 3), (5, 2), (3, 8)):
            shape = (batch, rows, 64)
            call = case(op, shape, (5, 2), mx.float32, kinds=(kind,), residual=residual)
            n = 1 + residual
            flat = call.flat()
            axes = (*[0] * n, *[None] * (len(flat) - n))
            check(call, mx.vmap(call, in_axes=axes)(*flat))
            moved = [mx.moveaxis(a, 0, 1) for a in flat[:n]] + flat[n:]
            axes = (*[1] * n, *[None] * (len(flat) - n))
            check(call, mx.vmap(call, in_axes=axes)(*moved))


@pytest.mark.parametrize("kind", [None, (4, 32)])
@pytest.mark.parametrize("op", OPS)
def test_compile(check, op, kind):
    call = case(op, (2, 64), (6, 6), mx.float16, kinds=(kind,), gated=True, residual=True)
    compiled = mx.compile(call)
    for rows in (2, 1, 2, 9):
        other = case(op, (rows, 64), (6, 6), mx.float16, kinds=(kind,), seed=rows, residual=True)
        other.options = dict(gated=True)
        check(other, compiled(*other.flat()))


@pytest.mark.parametrize("kind", [None, (4, 32)])
@pytest.mark.parametrize("op", OPS)
def test_shapeless(check, one_launch, backend, op, kind):
    """One trace serves other rows, more than one launch is chosen for, and none, and widths."""
    for first in (2, 9):
        call = case(op, (first, 64), (6, 3), mx.float32, kinds=(kind,), biases=(True, False))
        compiled = mx.compile(call, shapeless=True)
        check(call, compiled(*call.flat()))
        for rows, widths in ((1, (6, 3)), (8, (6, 3)), (11, (6, 3)), (33, (5, 9)), (0, (6, 3))):
            one = one_launch(first, op, kind)
            if rows == 0 and not one and (kind or backend == "cuda"):
                continue  # MLX's products divide by the number of rows
            other = case(
                op, (rows, 64), widths, mx.float32, kinds=(kind,), biases=(True, False), seed=rows
            )
            check(other, compiled(*other.flat()), one=one)
        check(call, compiled(*call.flat()))


def test_shapeless_in_16_bits_and_with_another_length(check, one_launch):
    call = case("layer_norm_linear", (2, 64), (6,), mx.float16, residual=True)
    compiled = mx.compile(call, shapeless=True)
    for shape in ((2, 64), (3, 33), (20, 100), (2, 2, 64)):
        other = case("layer_norm_linear", shape, (6,), mx.float16, residual=True)
        check(other, compiled(*other.flat()), one=one_launch(2))


@pytest.mark.parametrize("options", [{}, {"residual": True}, {"gated": True}], ids=str)
def test_shapeless_of_no_width(check, one_launch, options):
    call = case("rms_norm_linear", (2, 64), (6, 6), mx.float32, **options)
    compiled = mx.compile(call, shapeless=True)
    for widths in ((6, 6), (0, 0), *[(0, 3)] * ("gated" not in options), (6, 6)):
        other = case("rms_norm_linear", (3, 64), widths, mx.float32, **options)
        check(other, compiled(*other.flat()), one=one_launch(2))


@since("0.32.2")
@pytest.mark.parametrize("outputs", [1, 3])
@pytest.mark.parametrize("biased", [False, True], ids=["", "bias"])
def test_shapeless_gradients_of_one_matrix(biased, outputs):
    """MLX's own sum over the matrices of x, as in its matmul's gradient, would end the process."""
    w, matrix, bias = (normal(s, mx.float32, seed=9) for s in ((70,), (outputs, 70), (outputs,)))

    def f(x, w, matrix, bias):
        return [mlx_norms.rms_norm_linear(x, w, matrix, biases=bias if biased else None)]

    def gradients(x, cotangent):
        return mx.vjp(f, [x, w, matrix, bias], [cotangent])[1]

    compiled = mx.compile(gradients, shapeless=True)
    for batch, tokens in ((1, 2), (2, 3), (1, 1), (3, 1)):
        x = normal((batch, tokens, 70), mx.float32, seed=1)
        cotangent = normal((batch, tokens, outputs), mx.float32, seed=2)
        for got, expected in zip(compiled(x, cotangent), gradients(x, cotangent), strict=True):
            assert mx.allclose(got, expected, 1e-4, 1e-4), (batch, tokens)


@pytest.mark.parametrize("kind", [None, (4, 32)])
@pytest.mark.parametrize("op", OPS)
def test_vmap_of_the_bias_alone(op, kind):
    """Values are those of a call for each, and the gradient its sum; of any rank of x."""
    for shape in ((64,), (3, 64), (2, 3, 64)):
        call = case(op, shape, (32,), mx.float32, kinds=(kind,), biases=(True,))
        *others, bias = call.flat()
        f = lambda b, call=call, others=others: call(*others, b)[0]  # noqa: E731
        many = mx.stack([bias, 2 * bias, bias - 1])
        each = mx.stack([f(b) for b in many])
        assert mx.allclose(mx.vmap(f)(many), each, rtol=1e-5, atol=1e-3), shape
        got = mx.grad(lambda many, f=f: mx.vmap(f)(many).square().sum())(many)
        wanted = (2 * each).reshape(3, -1, 32).sum(axis=1)
        assert mx.allclose(got, wanted, rtol=1e-5, atol=1e-3), shape


@since("0.32.1")  # older ones give (x @ w.T) the shape of the trace
def test_shapeless_vmap(check):
    call = case("rms_norm_linear", (2, 3, 33), (5,), mx.float32)
    mapped = mx.compile(mx.vmap(call, in_axes=(0, None, None)), shapeless=True)
    for batch in (2, 7, 1):
        other = case("rms_norm_linear", (batch, 3, 33), (5,), mx.float32, seed=batch)
        check(other, mapped(*other.flat()), one=False)


@pytest.mark.gpu
@pytest.mark.parametrize("kind", [None, (4, 32)])
def test_shapeless_call_with_shapes_that_do_not_fit(kind):
    """The checks of the op ran on the shapes of the trace."""
    call = case("rms_norm_linear", (2, 64), (6, 3), mx.float32, kinds=(kind,))
    longer = case("rms_norm_linear", (2, 128), (6, 3), mx.float32, kinds=(kind,))
    compiled = mx.compile(call, shapeless=True)
    mx.eval(compiled(*call.flat()))
    for i in range(len(call.flat())):
        flat = call.flat()
        flat[i] = longer.flat()[i]
        if flat[i].shape != call.flat()[i].shape:
            with pytest.raises(ValueError):
                mx.eval(compiled(*flat))


# --- Layouts and memory

LAYOUTS = {
    "transposed": lambda a: mx.contiguous(a.T).T,
    "every second column": lambda a: mx.repeat(a, 2, axis=1)[:, ::2],
    "columns of a wider one": lambda a: mx.pad(a, ((0, 0), (3, 2)))[:, 3:-2],
    "rows of a longer one": lambda a: mx.pad(a, ((1, 2), (0, 0)))[1:-2],
    "every second row": lambda a: mx.repeat(a, 2, axis=0)[::2],
    "backwards": lambda a: mx.contiguous(a[::-1, ::-1])[::-1, ::-1],
}


@pytest.mark.parametrize("evaluated", [False, True])
@pytest.mark.parametrize("layout", LAYOUTS)
def test_layouts(check, layout, evaluated):
    """Of each array of two axes in turn, before and after it has been evaluated."""
    change = LAYOUTS[layout]
    for kind, rows in itertools.product((None, (4, 32)), (3, 9)):
        call = case(
            "rms_norm_linear", (rows, 64), (8, 16), mx.float32, kinds=(kind,), residual=True
        )
        flat = call.flat()
        for i, a in enumerate(flat):
            if a.ndim == 2:
                b = change(a)
                if evaluated:
                    mx.eval(b)
                check(call, call(*flat[:i], b, *flat[i + 1 :]), f"{layout} {i}")


def test_results_are_dense(backend):
    for rows in (2, 9):
        call = case("rms_norm_linear", (rows, 64), (6, 3), mx.float16, residual=True)
        outputs = call()
        mx.eval(outputs)
        for o in outputs:
            np.testing.assert_array_equal(np.array(o.reshape(-1)).reshape(o.shape), np.array(o))


def test_arrays_that_are_held_stay_as_they_are(check):
    """Inputs may lend their memory only where nobody else has them."""
    for rows, residual in itertools.product((2, 9), (False, True)):
        call = case("rms_norm_linear", (rows, 64), (64,), mx.float32, residual=residual)
        flat = call.flat()
        before = [np.array(a) for a in flat]
        mx.eval(call())
        for a, b in zip(flat, before, strict=True):
            np.testing.assert_array_equal(np.array(a), b)
        # Held by nobody: rows whose memory the sum may take.
        moved = [a + 0 for a in flat[: 1 + residual]]
        outputs = call(*moved, *flat[1 + residual :])
        del moved
        check(call, outputs)


def test_one_array_in_several_places(check):
    call = case("rms_norm_linear", (2, 33), (5, 5), mx.float32, residual=True)
    x, _, w, first, _ = call.flat()
    check(call.of_flat([x, x, w, first, first]))


def test_streams(check):
    call = case("rms_norm_linear", (2, 64), (5, 2), mx.float32)
    device = mx.default_device()
    for stream in (mx.new_stream(device), device, device.type):
        check(call, call(stream=stream))


def test_lazy():
    """Shapes and dtypes are known at once."""
    for rows in (1, 9):
        call = case("rms_norm_linear", (rows, 64), (5, 2), mx.float16, residual=True)
        mx.eval(call.flat())
        mx.synchronize()
        before = mx.get_active_memory()
        outputs = call()
        assert mx.get_active_memory() <= before
        assert [o.shape for o in outputs] == [(rows, 5), (rows, 2), (rows, 64)]
        assert [o.dtype for o in outputs] == [mx.float16] * 3


def test_export_is_refused(tmp_path):
    for rows in (2, 9):
        call = case("rms_norm_linear", (rows, 64), (5,), mx.float32)
        with pytest.raises(ValueError, match="serialize primitive"):
            mx.export_function(str(tmp_path / "norm.mlxfn"), call, *call.flat())


# --- What is refused


def arguments(op):
    """Good arguments of an op, all float32, with two weights."""
    layer = {"norm_bias": mx.ones(64)} if op == "layer_norm_linear" else {}
    return dict(
        x=mx.ones((2, 64)),
        norm_weight=mx.ones(64),
        weights=[mx.ones((5, 64)), mx.ones((5, 64))],
        biases=[mx.ones(5), None],
        residual=mx.ones((2, 64)),
        **layer,
    )


def quantized(length=64, bits=4, group=32):
    return mx.quantize(mx.ones((5, length)), group, bits)


def refused(op, *words):
    return pytest.raises(ValueError, match=rf"(?s)^\[{op}\] " + ".*".join(["", *words]))


def refuses(op, change, *words):
    __tracebackhide__ = True
    with refused(op, *words):
        getattr(mlx_norms, op)(**arguments(op) | change)


WRONG_DTYPES = [mx.int32, mx.uint8, mx.bool_, mx.complex64]


@pytest.mark.parametrize("op", OPS)
def test_dtype(op):
    for dtype in WRONG_DTYPES:
        words = "float32, float16 or bfloat16", str(dtype).split(".")[-1]
        for name, a in arguments(op).items():
            if isinstance(a, mx.array):
                refuses(op, {name: a.astype(dtype)}, rf"\b{name}\b", *words)
        for name, first in (("weights", mx.ones((5, 64))), ("biases", mx.ones(5))):
            rest = arguments(op)[name][1]
            refuses(op, {name: [first.astype(dtype), rest]}, rf"{name}\[0\]", *words)
        w, scales, biases = quantized()
        for name, weight in (
            ("scales", (w, scales.astype(dtype), biases)),
            ("biases", (w, scales, biases.astype(dtype))),
        ):
            both = [mx.ones((5, 64)), weight]
            refuses(op, {"weights": both}, rf"{name} of weights\[1\]", *words)
    refuses(op, {"weights": [mx.ones((5, 64)), (w.view(mx.int32), scales, biases)]}, "uint32")


@pytest.mark.parametrize("op", OPS)
def test_shapes(op):
    refuses(op, {"x": mx.array(1.0)}, r"\bx\b", "at least 1")
    refuses(op, {"residual": mx.ones((1, 64))}, "residual", r"\(2,64\)", r"\(1,64\)")
    for name in ("norm_weight", "norm_bias"):
        if name in arguments(op):
            for shape in ((63,), (1,), (1, 64), ()):
                refuses(op, {name: mx.ones(shape)}, name, r"\(64\)")
    for shape in ((64, 5), (5,), (1, 5, 64), (5, 65), ()):
        weights = [mx.ones((5, 64)), mx.ones(shape)]
        refuses(op, {"weights": weights}, r"weights\[1\]", r"N, 64", re.escape(text(shape)))
        refuses(op, {"weights": mx.ones(shape), "biases": None}, r"\bweights must")
    for shape in ((4,), (1,), (1, 5), ()):
        refuses(op, {"biases": [None, mx.ones(shape)]}, r"biases\[1\]", r"\(5\)")
        one = {"weights": mx.ones((5, 64)), "biases": mx.ones(shape)}
        refuses(op, one, r"\bbiases must", r"\(5\)")


def text(shape):
    return f"({','.join(map(str, shape))})"


@pytest.mark.parametrize("op", OPS)
def test_quantized_weights_that_do_not_fit(op):
    w, scales, biases = quantized()
    one = dict(biases=None)
    for weight in (
        *(quantized(128), quantized(32), quantized(bits=2), quantized(bits=3), quantized(bits=6)),
        *((w[:, :7], scales, biases), quantized(96)),
    ):
        refuses(op, one | {"weights": weight}, r"\bweights must", "4 or 8 bits", "64")
    refuses(op, one | {"weights": (w, scales[:4], biases[:4])}, "scales of weights", r"\(5,8\)")
    refuses(op, one | {"weights": (w, scales, biases[:, :1])}, "biases of weights")
    refuses(op, one | {"weights": (w[0], scales, biases)}, "scales of weights")
    refuses(op, one | {"weights": [(w, scales)]}, r"\bweights must", "2 arrays")


@pytest.mark.parametrize("op", OPS)
def test_numbers_of_weights_and_biases(op):
    for n in (0, 5):
        change = {"weights": [mx.ones((5, 64))] * n, "biases": None}
        refuses(op, change, "weights", "1 to 4", str(n))
    for n in (0, 1, 3):
        refuses(op, {"biases": [None] * n}, "biases", "2 weights", str(n))
    f, one = getattr(mlx_norms, op), {"weights": mx.ones((5, 64)), "biases": [mx.ones(5)]}
    for change, wanted in (
        ({"biases": mx.ones(5)}, "a list or None, as weights is one"),
        (one, "mx.array"),
    ):
        with pytest.raises(TypeError, match=rf"^\[{op}\] biases must be {wanted}"):
            f(**arguments(op) | change)


@pytest.mark.parametrize("op", OPS)
def test_gated_takes_two_of_one_width(op):
    one = mx.ones((5, 64))
    for weights in (one, [one], [one] * 3):
        refuses(op, {"weights": weights, "biases": None, "gated": True}, "gated", "two weights")
    change = {"weights": [one, mx.ones((4, 64))], "biases": None, "gated": True}
    refuses(op, change, "gated", "5", "4")


@pytest.mark.parametrize("op", OPS)
def test_eps(op):
    for eps in (-1e-5, float("nan")):
        refuses(op, {"eps": eps}, r"\beps\b")


def test_weight_offset_needs_a_weight():
    change = {"norm_weight": None, "weight_offset": 1.0}
    refuses("rms_norm_linear", change, "weight_offset", "norm_weight")


@pytest.mark.parametrize("op", OPS)
def test_what_is_no_array(op):
    f = getattr(mlx_norms, op)
    for name in arguments(op):
        for bad in ("text", object(), 1.0, [1.0]):
            with pytest.raises(TypeError):
                f(**arguments(op) | {name: bad})
    for name in ("x", "weights"):
        with pytest.raises(TypeError):
            f(**arguments(op) | {name: None})
    with pytest.raises(TypeError):
        f(*list(arguments(op).values())[:3], 1e-5, None)


@pytest.mark.parametrize("op", OPS)
def test_docstring(op):
    doc = inspect.getdoc(getattr(mlx_norms, op))
    names = (*arguments(op), "eps", "gated", "stream")
    for part in ("Args:", "Returns:", "Raises:", "Example:", *(f"{name} (" for name in names)):
        assert part in doc, part
