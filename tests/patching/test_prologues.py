"""What is pending before a norm: the sum of a residual and factor * x, bit by bit as MLX's ops."""

import itertools

import mlx.core as mx
import pytest

import mlx_norms
from support.bits import assert_same_bits
from support.inputs import normal
from support.norm_case import DTYPES
from support.patched_runs import (
    FUSED,
    NORMS,
    REPEATED,
    arrays_of,
    assert_close,
    operations,
    run_patched,
    run_stock,
)

pytestmark = [
    pytest.mark.usefixtures("backend"),
    pytest.mark.parametrize("norm", NORMS, ids=lambda norm: norm.name),
]

SHAPE = (2, 3, 4, 32)
NODES = {"rms_norm": "mlx_norms::AddRMSNorm", "layer_norm": "mlx_norms::AddLayerNorm"}
FACTORS = {
    "layer scale": (32,),
    "sample": (2, 1, 1, 32),
    "frame": (2, 3, 1, 32),
    "row of all": (1, 1, 1, 32),
    "whole": SHAPE,
}


@pytest.fixture(scope="module", autouse=True)
def arrays(backend):
    """What to take as x and residual, made on the device under test."""
    global x, r
    x, r = (normal(SHAPE, mx.float32, seed=seed) for seed in ("x", "r"))
    mx.eval(x, r)


def factor(shape, dtype=mx.float32):
    a = normal(shape, dtype, seed=shape)
    mx.eval(a)
    return a


def of(norm, h):
    """The norm in h's dtype, and h."""
    return norm(h, *(p.astype(h.dtype) for p in norm.parameters)), h


def check(norm, make, taken=True, reasons=None, left=()):
    """Whether the norm of make() is fused with all of it, or with the sum alone.

    Results have the bits of our norm after MLX's ops. ``left`` names what else is in the graph.
    """
    __tracebackhide__ = True
    results, report = run_patched(lambda: of(norm, make()))
    apart, _ = run_patched(lambda: of(norm, make()), fuse=False)
    assert report.reasons == (reasons or {FUSED: 1})
    for got, expected in zip(results, apart, strict=True):
        assert_same_bits(got, expected)
    if reasons is None:
        with mlx_norms.patched():
            n, h = of(norm, make())
            seen = operations(n, h)
        for name in ("AsType", "Broadcast"):
            del seen[name]
        expected = {NODES[norm.name]: 1} if taken else {NODES[norm.name]: 1, "Multiply": 1}
        assert seen == expected | dict(left)


class TestFactor:
    @pytest.mark.parametrize("number", [0.22, -1.5, 0.0, 3])
    def test_numbers(self, norm, number):
        for dtype in DTYPES:
            a, b = x.astype(dtype), r.astype(dtype)
            mx.eval(a, b)
            check(norm, lambda a=a, b=b: b + a * number)
            check(norm, lambda a=a, b=b: number * a + b)

    def test_one(self, norm):
        check(norm, lambda: r + x * 1.0)

    @pytest.mark.parametrize("form", FACTORS)
    def test_arrays(self, norm, form):
        for dtype in DTYPES:
            f, a, b = factor(FACTORS[form], dtype), x.astype(dtype), r.astype(dtype)
            mx.eval(a, b)
            for order in itertools.product((True, False), repeat=2):

                def make(f=f, a=a, b=b, order=order):
                    product = a * f if order[0] else f * a
                    terms = [b, product]
                    del product
                    return terms.pop() + terms.pop() if order[1] else terms.pop(0) + terms.pop()

                check(norm, make)

    def test_both_operands_are_products(self, norm):
        check(norm, lambda: r * 0.5 + x * factor((32,)), left={"Multiply": 1})

    def test_the_same_array_twice(self, norm):
        check(norm, lambda: x + x * x)

    def test_a_pending_factor(self, norm):
        def make():
            return r + x * mx.tanh(factor((2, 1, 1, 32)))

        check(norm, make, left={"Tanh": 1})

    def test_layouts(self, norm):
        wide = normal((*SHAPE[::-1], 2), mx.float32, seed="wide")
        a, f = wide[..., 0].T, normal((32, 2), mx.float32, seed="f")[:, 1]
        mx.eval(a, f)
        check(norm, lambda: r + a * f)


class TestNearMisses:
    """The sum alone is fused; the product is one of MLX's."""

    @pytest.mark.parametrize("shape", [(1,), (2, 3, 4, 1), (1, 3, 1, 1)], ids=str)
    def test_one_element_for_a_row(self, norm, shape):
        check(norm, lambda: r + x * factor(shape), taken=False)

    def test_a_scalar_that_is_no_number(self, norm):
        check(norm, lambda: r + x * mx.tanh(mx.array(0.5)), taken=False, left={"Tanh": 1})

    def test_product_held(self, norm):
        held = []

        def make():
            held.append(x * factor((32,)))
            return r + held[-1]

        check(norm, make, taken=False)

    def test_product_used_elsewhere(self, norm):
        def f():
            product = x * factor((32,))
            used = mx.tanh(product)
            h = r + product
            del product
            return *of(norm, h), used

        results, report = run_patched(f)
        assert report.reasons == {FUSED: 1}
        for got, expected in zip(results, run_patched(f, fuse=False)[0], strict=True):
            assert_same_bits(got, expected)
        with mlx_norms.patched():
            assert operations(*f())["Multiply"] == 1

    def test_product_added_twice(self, norm):
        def make():
            product = x * 0.5
            return product + product

        check(norm, make, taken=False)

    def test_product_evaluated_first(self, norm):
        def make():
            product = x * factor((32,))
            mx.eval(product)
            return r + product

        check(norm, make)

    def test_product_on_another_stream(self, norm):
        other = mx.new_stream(mx.default_device())
        f = factor((32,))
        check(norm, lambda: r + mx.multiply(x, f, stream=other), taken=False)

    def test_product_of_another_shape(self, norm):
        """It is the product that is broadcast."""
        check(norm, lambda: r + x[:1] * factor((1, 3, 4, 32)), taken=False, left={"Slice": 1})

    def test_product_of_broadcast_arrays(self, norm):
        """Either of them may be the factor."""
        check(norm, lambda: r + factor((2, 1, 4, 32)) * factor((1, 3, 4, 32)))

    def test_x_repeated_along_the_row(self, norm):
        check(norm, lambda: r + factor((2, 3, 4, 1)) * factor((32,)), taken=False)

    def test_residual_repeated_along_the_row(self, norm):
        column = factor((2, 3, 4, 1))
        check(norm, lambda: column + x * factor((32,)), reasons={REPEATED: 1})

    def test_quotient(self, norm):
        f = factor((32,))
        check(norm, lambda: r + x / f, left={"Divide": 1})

    @pytest.mark.parametrize("dtype", DTYPES, ids=str)
    def test_rounding_late(self, norm, dtype):
        """With a weight 1 + w products would not be rounded before they are added."""
        a, b, w = x.astype(dtype), r.astype(dtype), factor((32,), dtype)

        def f():
            h = b + a * 0.3
            if norm.layer:
                return mx.fast.layer_norm(h, 1 + w, None, 1e-5), h
            return mx.fast.rms_norm(h, 1 + w, 1e-5), h

        (_, h), report = run_patched(f)
        assert (report.fused, report.offsets) == (1, 1)
        assert_same_bits(h, b + a * 0.3)


class TestTransforms:
    FACTORS = ("layer scale", "sample", "whole")

    def function(self, norm):
        def f(x, r, g):
            n, h = of(norm, r + g * x)
            return n * 2 + h

        return f

    @pytest.mark.parametrize("form", FACTORS)
    def test_gradients(self, norm, form):
        f, g = self.function(norm), factor(FACTORS[form])

        def gradients():
            return mx.grad(lambda *a: mx.tanh(f(*a)).sum(), argnums=(0, 1, 2))(x, r, g)

        got, report = run_patched(gradients)
        assert report.reasons == {FUSED: 1}
        assert_close(got, run_stock(gradients))

    def test_gradient_of_a_number(self, norm):
        def gradients():
            return mx.grad(lambda x, r: mx.tanh(of(norm, r + 0.3 * x)[0]).sum(), (0, 1))(x, r)

        got, report = run_patched(gradients)
        assert report.reasons == {FUSED: 1}
        assert_close(got, run_stock(gradients))

    @pytest.mark.parametrize("axes", [(0, 0, None), (0, None, 0), (None, 0, 0), (None, None, 0)])
    def test_vmap(self, norm, axes):
        scales = mx.array([1.0, 0.5])[:, None, None, None, None]
        them = [x, r, factor((2, 1, 1, 32))]
        for i, axis in enumerate(axes):
            them[i] = them[i] if axis is None else them[i][None] * scales

        def mapped():
            return mx.vmap(self.function(norm), in_axes=axes)(*them)

        got, _ = run_patched(mapped)
        assert_close(got, run_stock(mapped))

    @pytest.mark.parametrize("shapeless", [False, True])
    def test_compile(self, norm, shapeless):
        f, g = self.function(norm), factor((2, 1, 1, 32))
        expected = run_stock(lambda: (f(x, r, g), f(x[:, :1], r[:, :1], g)))

        def compiled():
            c = mx.compile(f, shapeless=shapeless)
            return c(x, r, g), c(x[:, :1], r[:, :1], g)

        got, _ = run_patched(compiled)
        assert_close(got, expected)

    def test_checkpoint(self, norm):
        f, g = self.function(norm), factor((2, 1, 1, 32))

        def gradients():
            return mx.grad(lambda *a: mx.checkpoint(f)(*a).sum(), argnums=(0, 1, 2))(x, r, g)

        assert_close(run_patched(gradients)[0], run_stock(gradients))


class TestGraphPass:
    """fuse() counts uses, since it holds arrays itself."""

    def test_taken(self, norm):
        g = factor((2, 1, 1, 32))

        def f(x, r):
            return of(norm, r + x * g)

        outputs = mlx_norms.fuse(f)(x, r)
        seen = operations(*outputs)
        assert seen[NODES[norm.name]] == 1 and seen["Multiply"] == 0
        for got, expected in zip(outputs, run_patched(lambda: f(x, r), fuse=False)[0], strict=True):
            assert_same_bits(got, expected)

    @pytest.mark.parametrize("how", ["returned", "used", "argument"])
    def test_left(self, norm, how):
        def f(x, r, product=None):
            product = x * 0.5 if product is None else product
            outputs = of(norm, r + product)
            return (*outputs, product if how == "returned" else mx.tanh(product) + outputs[0])

        product = (x * 0.5,) if how == "argument" else ()
        outputs = mlx_norms.fuse(f)(x, r, *product)
        seen = operations(*outputs)
        assert seen[NODES[norm.name]] == 1 and seen["Multiply"] == 1
        assert_close(outputs, f(x, r))


def test_a_chain_of_blocks(norm):
    """Each sum is the residual of the next, as in granite."""
    w = normal((32, 32), mx.float32, seed="w", std=0.2)
    mx.eval(w)

    def f():
        h, n = r, x
        for _ in range(3):
            n, h = of(norm, h + mx.tanh(n @ w) * 0.22)
        return n, h

    results, report = run_patched(f)
    assert report.reasons == {FUSED: 3}
    with mlx_norms.patched():
        assert operations(*f())["Multiply"] == 0
    assert_close(results, run_stock(f))
    assert len(arrays_of(results)) == 2
