"""Quantized products that no norm comes before, given to our kernel before evaluation."""

import functools
import itertools

import mlx.core as mx
import mlx.nn as nn
import pytest

import mlx_norms
from mlx_norms import _ext
from mlx_norms.commands import _tiny_models
from support.bits import assert_same_bits
from support.inputs import normal
from support.model_fusions import generated_tokens, tokens
from support.norm_case import DTYPES
from support.patched_runs import operations
from support.releases import EXPERTS

DEPTH, OUTPUTS, GROUP = 64, 40, 32


@pytest.fixture(autouse=True)
def anywhere(backend):
    """Also where it is not known to be faster."""
    _ext.set_products_anywhere(True)
    yield
    _ext.set_products_anywhere(False)


@pytest.fixture
def takes(backend):
    """How many products are taken of so many: on the CPU MLX computes all."""
    return lambda products: 0 if backend == "cpu" else products


def layer(dtype=mx.float32, bits=4, seed=0, mode="affine", outputs=OUTPUTS):
    w = normal((outputs, DEPTH), dtype, seed=("w", seed))
    parts = mx.quantize(w, GROUP, bits, mode=mode)
    mx.eval(parts)
    return lambda x: mx.quantized_matmul(x, *parts, group_size=GROUP, bits=bits, mode=mode), parts


def arrays(rows=3, dtype=mx.float32):
    found = normal((1, rows, DEPTH), dtype, seed=1), normal((1, rows, OUTPUTS), dtype, seed=2)
    mx.eval(found)
    return found


def evaluated(function, *args):
    """Its arrays with the pass, and how many products it took."""
    with mlx_norms.patched(projections=True):
        out = function(*args)
        mx.eval(out)
        return out, mlx_norms.report().products


def check(function, *args, taken):
    """So many products are taken, and the results are MLX's but for the order of sums."""
    expected = function(*args)
    mx.eval(expected)
    got, products = evaluated(function, *args)
    assert products == taken
    one = isinstance(got, mx.array)
    for a, b in zip([got] if one else got, [expected] if one else expected, strict=True):
        assert (a.shape, a.dtype) == (b.shape, b.dtype)
        assert mx.allclose(a, b, rtol=1e-5, atol=1e-4)


def test_products_have_the_bits_of_the_op(takes):
    for dtype, rows, bits in itertools.product(DTYPES, (1, 4), (4, 8)):
        product, parts = layer(dtype, bits)
        x, r = arrays(rows, dtype)
        options = dict(group_size=GROUP, bits=bits)
        got, products = evaluated(product, x)
        assert products == takes(1)
        assert_same_bits(got, mlx_norms.quantized_matmul(x, *parts, **options))
        for add in (lambda x, r: product(x) + r, lambda x, r: r + product(x)):
            got, products = evaluated(add, x, r)
            assert products == takes(1)
            assert_same_bits(got, mlx_norms.quantized_matmul(x, *parts, **options, residual=r))


def test_one_launch_for_product_and_residual(launches):
    product, parts = layer()
    x, r = arrays()
    with mlx_norms.patched(projections=True):
        y, both = product(x) + r, product(2 * x)
        _ext.fuse_at_eval([y, both], False, True)
    assert len(launches(y)) == 1
    assert len(launches(both)) == 1


def test_a_residual_is_not_added_where_others_use_the_product(takes):
    product, _ = layer()
    x, r = arrays()

    def before(x, r):
        y = product(x)
        return mx.tanh(y), y + r

    def after(x, r):
        y = product(x)
        return y + r, mx.tanh(y)

    def held(x, r):
        y = product(x)
        return y + r, y

    for function in (before, after, held):
        check(function, x, r, taken=takes(1))
        with mlx_norms.patched(projections=True):
            outputs = function(x, r)
            _ext.fuse_at_eval(list(outputs), False, True)
        assert operations(*outputs)["Add"] == 1
    check(lambda x, r: product(x) + product(x), x, r, taken=takes(2))
    check(lambda x: (lambda y: y + y)(product(x)), x, taken=takes(1))


def test_what_is_no_residual(takes):
    """A bias, another shape or dtype, another op."""
    product, _ = layer()
    x, r = arrays()
    for function in (
        lambda x, r: product(x) + r[0, 0],
        lambda x, r: product(x)[0] + r,
        lambda x, r: product(x) + r.astype(mx.float16),
        lambda x, r: product(x) - r,
        lambda x, r: product(x) * r,
    ):
        check(function, x, r, taken=takes(1))


def test_what_is_not_taken():
    """Too many rows, other forms, and weights that are not there."""
    x, _ = arrays()
    for bits in (2, 3, 6):
        check(layer(bits=bits)[0], x, taken=0)
    check(layer()[0], arrays(17)[0], taken=0)
    check(layer(mode="mxfp4")[0], x, taken=0)
    check(layer(mx.float16)[0], x, taken=0)  # x is of float32
    _, parts = layer()
    turned = lambda x: mx.quantized_matmul(x, *parts, transpose=False, group_size=GROUP)  # noqa: E731
    check(turned, normal((1, 3, OUTPUTS), mx.float32, seed=4), taken=0)
    pending = lambda x: mx.quantized_matmul(x, parts[0], parts[1] + 0, parts[2], group_size=GROUP)  # noqa: E731
    check(pending, x, taken=0)


@pytest.fixture
def by_tiles():
    """Lets a backend without matrix units multiply by tiles, too."""
    yield _ext.set_tiles_anywhere
    _ext.set_tiles_anywhere(False)


@pytest.mark.parametrize("rows, tiles", [(2, True), (3, False), (3, True)])
def test_products_after_a_norm_are_not_taken_twice(rows, tiles, takes, by_tiles, backend):
    """With several rows both are faster by tiles than one of them by lanes, with the norm."""
    by_tiles(tiles)
    weight = mx.ones(DEPTH)
    first, second = nn.Linear(DEPTH, DEPTH), nn.Linear(DEPTH, DEPTH, bias=False)
    first, second = (nn.QuantizedLinear.from_linear(f, GROUP) for f in (first, second))
    mx.eval(weight, first.parameters(), second.parameters())
    x, _ = arrays(rows)

    def block(x):
        return x + second(first(mx.fast.rms_norm(x, weight, 1e-5)))

    apart = rows == 3 and (tiles or backend == "cuda")
    check(block, x, taken=takes(2 if apart else 1))


def test_nothing_is_taken_where_nothing_is_known():
    _ext.set_products_anywhere(False)
    check(layer()[0], arrays()[0], taken=0)


@pytest.mark.parametrize("bits, most", [(4, 16), (8, 8)])
def test_what_has_been_measured_is_taken(bits, most, takes, by_tiles):
    """By the pass alone: what it leaves behind is not evaluated."""
    _ext.set_products_anywhere(False)
    by_tiles(True)
    for outputs, rows in ((1024, most), (1024, most + 1), (992, 1)):
        parts = (
            mx.zeros((outputs, 4096 * bits // 32), mx.uint32),
            mx.zeros((outputs, 4096 // GROUP)),
        )
        x = mx.ones((rows, 4096))
        mx.eval(parts, x)
        with mlx_norms.patched(projections=True):
            form = dict(group_size=GROUP, bits=bits)
            _ext.fuse_at_eval([mx.quantized_matmul(x, *parts, parts[1], **form)], False, True)
            taken = mlx_norms.report().products
        assert taken == takes(int(outputs == 1024 and rows == most))


def test_gradients_and_compiled_functions(takes):
    product, _ = layer()
    x, r = arrays()
    loss = lambda x, r: mx.square(product(x) + r).sum()  # noqa: E731
    for function in (mx.grad(loss), mx.compile(lambda x, r: product(x) + r)):
        expected = function(x, r)
        got, _ = evaluated(function, x, r)
        assert mx.allclose(got, expected, rtol=1e-4, atol=1e-2)


@pytest.mark.parametrize(
    "name", ["llama", "qwen3", "gemma2", pytest.param("mixtral", marks=EXPERTS)]
)
def test_generated_tokens(name, backend):
    """Of mixtral the experts' products are others."""
    model, prompt = _tiny_models.build(name), tokens(name, 8)
    nn.quantize(model, group_size=32, bits=4)
    mx.eval(model.parameters())

    generated = functools.partial(generated_tokens, model, prompt, 8)

    stock = generated()
    with mlx_norms.patched(projections=True):
        assert generated() == stock
        products = mlx_norms.report().products
    # o_proj and down_proj of each layer, for each token but those of the prompt.
    expected = 7 * len(model.layers) * (1 if name == "mixtral" else 2)
    assert products >= expected if backend != "cpu" else products == 0
