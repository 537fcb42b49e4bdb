"""What is pending before a norm: the sum of a residual and factor * x, bit by bit as MLX's ops."""

import itertools
import subprocess
import sys
import textwrap

import mlx.core as mx
import pytest
from mlx_lm.models import gemma3_text

import mlx_norms
from support.bits import assert_same_bits
from support.inputs import normal
from support.norm_case import DTYPES
from support.patched_runs import (
    ALONE,
    FUSED,
    NORMS,
    OTHER_STREAM,
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


def run_elsewhere(code):
    """In a process of its own, on the CPU."""
    start = """
        import mlx.core as mx
        import mlx_norms
        from mlx_lm.models import gemma3_text
        mx.set_default_device(mx.cpu)
        a, b, w = (mx.ones((3, 32), mx.float16) for _ in range(3))
        w = w[0]
        mx.eval(a, b, w)
        """
    text = textwrap.dedent(start) + textwrap.dedent(code)
    result = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True)
    assert result.returncode == 0, result.stderr


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

    # mx.fast itself fails on empty arrays with CUDA.
    @pytest.mark.backends("cpu", "metal", "metal-sim")
    def test_nothing(self, norm):
        a = mx.zeros((0, 32))
        mx.eval(a)
        check(norm, lambda: a + a * 0.5)
        check(norm, lambda: (a + a) * factor((1,)))

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


class TestFactorOfSum:
    """(residual + x) * an array of one element, as gemma4's layers end: rounded after each."""

    @pytest.mark.parametrize("shape", [(), (1,), (1, 1, 1)], ids=str)
    def test_taken(self, norm, shape):
        for dtype in DTYPES:
            f, a, b = factor(shape, dtype), x.astype(dtype), r.astype(dtype)
            mx.eval(a, b)
            check(norm, lambda f=f, a=a, b=b: (b + a) * f)
            check(norm, lambda f=f, a=a, b=b: f * (b + a))

    def test_number(self, norm):
        check(norm, lambda: (r + x) * 0.7)

    @pytest.mark.parametrize("length", [1, 7, 33, 100, 1000, 4100])
    def test_lengths(self, norm, length):
        f = factor((1,), mx.bfloat16)
        a, b = (normal((3, length), mx.bfloat16, seed=seed) for seed in "ab")
        mx.eval(a, b)

        def run():
            h = (a + b) * f
            return mx.fast.rms_norm(h, None, 1e-5), h

        results, report = run_patched(run)
        assert report.fused == 1
        for got, expected in zip(results, run_patched(run, fuse=False)[0], strict=True):
            assert_same_bits(got, expected)

    def test_layouts(self, norm):
        wide = normal((*SHAPE[::-1], 2), mx.float32, seed="wide")
        a, f = wide[..., 0].T, factor((3,))[1:2]
        mx.eval(a, f)
        check(norm, lambda: (r[::-1] + a) * f, left={"Slice": 1})

    def test_rounding_late(self, norm):
        """With a weight 1 + w: its rounding is the same."""
        a, b = x.astype(mx.bfloat16), r.astype(mx.bfloat16)
        w, f = factor((32,), mx.bfloat16), factor((1,), mx.bfloat16)

        def run():
            h = (b + a) * f
            return mx.fast.rms_norm(h, 1 + w, 1e-5), h

        (_, h), report = run_patched(run)
        assert (report.fused, report.offsets) == (1, 1)
        assert_same_bits(h, (b + a) * f)

    @pytest.mark.parametrize("shape", [(32,), (2, 1, 1, 1), (2, 3, 4, 1), SHAPE], ids=str)
    def test_more_elements(self, norm, shape):
        check(norm, lambda: (r + x) * factor(shape), reasons={ALONE: 1})

    def test_sum_taken_elsewhere(self, norm):
        f, held = factor((1,)), []

        def make(hold):
            h = r + x
            if hold:
                held.append(h)
            return h * f + mx.tanh(h) if not hold else h * f

        check(norm, lambda: make(True), reasons={ALONE: 1})
        check(norm, lambda: make(False), taken=False, left={"Tanh": 1, "Add": 1})

    def test_sum_evaluated_first(self, norm):
        f = factor((1,))

        def make():
            h = r + x
            mx.eval(h)
            return h * f

        check(norm, make, reasons={ALONE: 1})

    def test_sum_normalized_first(self, norm):
        f = factor((1,))

        def run():
            h = r + x
            return of(norm, h), of(norm, h * f)

        results, report = run_patched(run)
        assert report.reasons == {FUSED: 1, ALONE: 1}
        assert_close(results, run_stock(run))

    def test_sum_on_another_stream(self, norm):
        f, other = factor((1,)), mx.new_stream(mx.default_device())
        check(norm, lambda: mx.add(r, x, stream=other) * f, reasons={ALONE: 1})
        check(norm, lambda: mx.multiply(r + x, f, stream=other), reasons={OTHER_STREAM: 1})

    def test_wider_factor(self, norm):
        """The sum is cast before it is multiplied."""
        a, b = x.astype(mx.bfloat16), r.astype(mx.bfloat16)
        check(norm, lambda: (b + a) * factor((1,)), reasons={ALONE: 1})

    def test_sum_of_broadcast_operands(self, norm):
        check(norm, lambda: (r[:1] + x) * factor((1,)), left={"Slice": 1})
        column = factor((2, 3, 4, 1))
        check(norm, lambda: (column + x) * factor((1,)), reasons={REPEATED: 1})

    def test_gradients(self, norm):
        f = factor((1,))

        def gradients():
            def g(x, r, f, w):
                h = (r + x) * f
                return mx.tanh(norm(h, w, *norm.parameters[1:]) + h).sum()

            return mx.grad(g, argnums=(0, 1, 2, 3))(x, r, f, norm.parameters[0])

        got, report = run_patched(gradients)
        assert report.reasons == {FUSED: 1}
        assert_close(got, run_stock(gradients))

    @pytest.mark.parametrize("argnums", [0, 1, 2])
    def test_one_gradient(self, norm, argnums):
        f = factor((1,))

        def gradient():
            def g(x, r, f):
                h = (r + x) * f
                return mx.square(norm(h) + h).sum()

            return mx.grad(g, argnums=argnums)(x, r, f)

        assert_close(run_patched(gradient)[0], run_stock(gradient))

    def test_forward_derivative(self, norm):
        f = factor((1,))

        def derivative():
            return mx.jvp(lambda *a: list(of(norm, (a[1] + a[0]) * a[2])), (x, r, f), (x, x, f))[1]

        assert_close(run_patched(derivative)[0], run_stock(derivative))

    @pytest.mark.parametrize("axes", [(0, 0, None), (None, 0, None), (0, 0, 0), (None, None, 0)])
    def test_vmap(self, norm, axes):
        them = (x, r, factor((2, 1)) if axes[2] == 0 else factor((1,)))

        def mapped():
            return mx.vmap(lambda x, r, f: of(norm, (r + x) * f), in_axes=axes)(*them)

        got, _ = run_patched(mapped)
        assert_close(got, run_stock(mapped))

    @pytest.mark.parametrize("shapeless", [False, True])
    def test_compile(self, norm, shapeless):
        f = factor((1,))

        def run():
            g = mx.compile(lambda x, r, f: of(norm, (r + x) * f), shapeless=shapeless)
            return g(x, r, f), g(x[:, :1], r[:, :1], 2 * f)

        assert_close(run_patched(run)[0], run_stock(run))

    def test_by_the_graph_pass(self, norm):
        f = factor((1,))

        def run(x, r):
            return of(norm, (r + x) * f)

        got = mlx_norms.fuse(run)(x, r)
        assert operations(*got) == {NODES[norm.name]: 1}
        for ours, apart in zip(got, run_patched(lambda: run(x, r), fuse=False)[0], strict=True):
            assert_same_bits(ours, apart)

        def taken(x, r):
            h = r + x
            return of(norm, h * f), mx.tanh(h)

        assert operations(*arrays_of(mlx_norms.fuse(taken)(x, r)))["Add"] == 1


def clip_residual(x, y, bound=65504.0):
    """As in mlx_lm's gemma3."""
    clipped = mx.clip(x.astype(mx.float32) + y.astype(mx.float32), -bound, bound)
    return clipped.astype(mx.float16)


class TestClampedSum:
    """A float16 sum that a compiled function clips in float32."""

    def arrays(self, dtype=mx.float16):
        a, b = (mx.clip(40000 * v, -65000, 65000).astype(dtype) for v in (x, r))
        a[0, 0, 0, :2] = mx.array([mx.inf, -mx.inf])
        mx.eval(a, b)
        return a, b

    def check(self, norm, function, taken, dtypes=(mx.float16, mx.float16)):
        """Sums of two rows: one that has no finite norm, and others."""
        a, b = (self.arrays(dtype)[i] for i, dtype in enumerate(dtypes))

        def make():
            return function(a, b)

        check(norm, make, reasons=None if taken else {ALONE: 1})
        h = run_patched(lambda: of(norm, make()))[0][1]
        assert_same_bits(h, make())
        return h

    @pytest.mark.parametrize("shapeless", [True, False])
    def test_taken(self, norm, shapeless):
        function = mx.compile(clip_residual, shapeless=shapeless)
        h = self.check(norm, function, taken=True)
        assert mx.sum(mx.abs(h) == 65504).item() > 20

    def test_of_gemma3(self, norm):
        self.check(norm, gemma3_text.clip_residual, taken=True)

    def test_nan_stays(self, norm):
        a, b = self.arrays()
        a = mx.where(mx.arange(32) == 3, mx.nan, a)
        (_, h), report = run_patched(lambda: of(norm, gemma3_text.clip_residual(a, b)))
        assert report.fused == 1
        assert mx.array_equal(mx.isnan(h), mx.isnan(a)).item()

    def test_of_gemma3_in_other_dtypes(self, norm):
        """There it is x + y."""
        for dtype in (mx.float32, mx.bfloat16):
            self.check(norm, gemma3_text.clip_residual, taken=True, dtypes=(dtype, dtype))

    def test_first_seen_within_a_trace(self, norm):
        """What recognizes it is compiled when it is first needed: there, in another way."""
        run_elsewhere(
            """
            h = gemma3_text.clip_residual(a, b)
            with mlx_norms.patched():
                mx.eval(mx.compile(lambda w: mx.fast.rms_norm(h, w, 1e-5))(w))
                h = gemma3_text.clip_residual(a, b)
                mx.eval(mx.fast.rms_norm(h, w, 1e-5))
                assert mlx_norms.report().fused == 2, mlx_norms.report()
            """
        )

    @pytest.mark.parametrize("shapeless", [True, False])
    @pytest.mark.parametrize(
        "near",
        [
            lambda a, b: clip_residual(a, b, 60000.0),
            lambda a, b: clip_residual(a, b, 65503.0),
            lambda a, b: mx.clip(a.astype(mx.float32) + b.astype(mx.float32), -65504, 65505).astype(
                mx.float16
            ),
            lambda a, b: mx.clip(a + b, -65504.0, 65504.0),
            lambda a, b: clip_residual(a, a + b),
            lambda a, b: clip_residual(a, b) + 0,
            lambda a, b: mx.minimum(a.astype(mx.float32) + b.astype(mx.float32), 65504.0).astype(
                mx.float16
            ),
            lambda a, b: mx.clip(
                a.astype(mx.float32) - b.astype(mx.float32), -65504.0, 65504.0
            ).astype(mx.float16),
        ],
    )
    def test_other_functions(self, norm, near, shapeless):
        self.check(norm, mx.compile(near, shapeless=shapeless), taken=False)

    def test_not_compiled(self, norm):
        self.check(norm, clip_residual, taken=False)

    def test_bounds_as_arguments(self, norm):
        """Arrays of one element, whose values the function does not know."""
        function = mx.compile(clip_residual, shapeless=True)
        self.check(norm, lambda a, b: function(a, b, mx.array(65504.0)), taken=False)

    @pytest.mark.parametrize("dtypes", [(mx.float16, mx.float32), (mx.bfloat16, mx.float16)])
    def test_other_dtypes(self, norm, dtypes):
        self.check(norm, mx.compile(clip_residual, shapeless=True), taken=False, dtypes=dtypes)

    def test_broadcast_to_each_other(self, norm):
        a, b = self.arrays()
        function = mx.compile(clip_residual, shapeless=True)
        check(norm, lambda: function(a[:1], b), reasons={ALONE: 1})

    def test_evaluated_first(self, norm):
        a, b = self.arrays()

        def make():
            h = gemma3_text.clip_residual(a, b)
            mx.eval(h)
            return h

        check(norm, make, reasons={ALONE: 1})

    def test_gradient(self, norm):
        """MLX traces the function without compiling it."""
        a, b = (0.1 * v.astype(mx.float32) for v in self.arrays())
        a = mx.where(mx.isfinite(a), a, 1).astype(mx.float16)
        b = b.astype(mx.float16)

        def gradients():
            def f(a, b):
                return (of(norm, gemma3_text.clip_residual(a, b))[0] * b).sum()

            return mx.grad(f, argnums=(0, 1))(a, b)

        got, report = run_patched(gradients)
        assert report.reasons == {ALONE: 1}
        assert_close(got, run_stock(gradients))

    def test_by_the_graph_pass(self, norm):
        a, b = self.arrays()

        def f(a, b):
            return of(norm, gemma3_text.clip_residual(a, b))

        got = mlx_norms.fuse(f)(a, b)
        assert set(operations(*got)) - {"AsType"} == {NODES[norm.name]}
        for ours, apart in zip(got, run_patched(lambda: f(a, b), fuse=False)[0], strict=True):
            assert_same_bits(ours, apart)


class TestCast:
    """A norm in float32 of what has 16 bits."""

    def arrays(self, dtype):
        a, b = x.astype(dtype), r.astype(dtype)
        mx.eval(a, b)
        return a, b

    def check(self, norm, make, seen, reasons=None):
        """As with MLX's norm; ``seen`` are the casts, sums and products that are left."""

        def f():
            return norm(make(), *norm.parameters)

        with mlx_norms.patched():
            left = operations(f())
            assert (left["AsType"], left["Add"], left["Multiply"]) == seen
        got, report = run_patched(f)
        assert got.dtype == mx.float32
        assert_close(got, run_stock(f))
        assert report.reasons == (reasons or {ALONE: 1})

    @pytest.mark.parametrize("dtype", DTYPES[1:], ids=str)
    def test_taken(self, norm, dtype):
        a, b = self.arrays(dtype)
        self.check(norm, lambda: a.astype(mx.float32), (0, 0, 0))
        self.check(norm, lambda: (a + b).astype(mx.float32), (0, 0, 0), {FUSED: 1})
        self.check(norm, lambda: (a + b * 0.3).astype(mx.float32), (0, 0, 0), {FUSED: 1})

    def test_sum_has_16_bits(self, norm):
        """It is rounded before it is cast, for all who take it."""
        a, b = self.arrays(mx.float16)
        (h, _), report = run_patched(lambda: (h := a + b, norm(h.astype(mx.float32))))
        assert report.fused == 1
        assert_same_bits(h, a + b)

    def test_cast_back(self, norm):
        a, _ = self.arrays(mx.bfloat16)

        def f():
            return norm(a.astype(mx.float32), *norm.parameters).astype(mx.bfloat16)

        with mlx_norms.patched():
            assert operations(f())["AsType"] == 0
        assert_close(run_patched(f)[0], run_stock(f), roundings=1)

    def test_taken_elsewhere(self, norm):
        """The cast is computed for those who take it, and the norm reads 16 bits."""
        a, _ = self.arrays(mx.bfloat16)

        def f():
            c = a.astype(mx.float32)
            return c, norm(c), mx.tanh(c)

        results, _ = run_patched(f)
        assert_close(results, run_stock(f))

    @pytest.mark.parametrize(
        "near",
        [
            lambda a: a.astype(mx.bfloat16).astype(mx.float16).astype(mx.float32),
            lambda a: (mx.arange(a.size) % 7).reshape(a.shape).astype(mx.float32),
            lambda a: a.astype(mx.float32) + 0 * a,
        ],
        ids=["of a cast", "of integers", "before the sum"],
    )
    def test_other_casts(self, norm, near):
        """Only the last is taken, and only of 16 bits."""
        a, _ = self.arrays(mx.float16)
        with mlx_norms.patched():
            before, after = (operations(g(near(a))) for g in (lambda c: c, norm))
        taken = before["Add"] == before["Remainder"] == 0
        assert before["AsType"] - after["AsType"] == taken
        got, report = run_patched(lambda: norm(near(a)))
        assert_close(got, run_stock(lambda: norm(near(a))))
        assert report.reasons == ({FUSED: 1} if before["Add"] else {ALONE: 1})

    def test_evaluated_first(self, norm):
        a, _ = self.arrays(mx.float16)

        def make():
            c = a.astype(mx.float32)
            mx.eval(c)
            return c

        self.check(norm, make, (0, 0, 0))

    def test_narrowing(self, norm):
        """It is kept: the values differ."""
        with mlx_norms.patched():
            assert operations(norm(x.astype(mx.float16)))["AsType"] == 1
            a, _ = self.arrays(mx.float16)
            assert operations(norm(a.astype(mx.bfloat16)))["AsType"] == 1

    def test_on_another_stream(self, norm):
        a, _ = self.arrays(mx.float16)
        other = mx.new_stream(mx.default_device())
        with mx.stream(other):
            c = a.astype(mx.float32)
        with mlx_norms.patched():
            assert operations(norm(c))["AsType"] == 1

    def test_without_fusion(self, norm):
        a, _ = self.arrays(mx.float16)
        with mlx_norms.patched(fuse=False):
            assert operations(norm(a.astype(mx.float32)))["AsType"] == 1

    def test_by_the_graph_pass(self, norm):
        a, b = self.arrays(mx.bfloat16)

        def f(a, b):
            h = a + b
            return norm(h.astype(mx.float32), *norm.parameters), h

        got = mlx_norms.fuse(f)(a, b)
        assert operations(*got) == {NODES[norm.name]: 1}
        assert_close(got, run_stock(lambda: f(a, b)))

    @pytest.mark.parametrize("transform", ["grad", "vmap", "compile", "shapeless"])
    def test_transforms(self, norm, transform):
        a, b = self.arrays(mx.bfloat16)

        def f(a, b):
            h = a + b
            n = norm(h.astype(mx.float32), *norm.parameters)
            return h + mx.tanh(n).astype(mx.bfloat16)

        def run():
            if transform == "grad":
                return mx.grad(lambda *a: f(*a).astype(mx.float32).sum(), argnums=(0, 1))(a, b)
            if transform == "vmap":
                return mx.vmap(f)(a, b)
            return mx.compile(f, shapeless=transform == "shapeless")(a, b)

        assert_close(run_patched(run)[0], run_stock(run), roundings=4)


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
            more = {"returned": (product,), "used": (mx.tanh(product) + outputs[0],)}
            return *outputs, *more.get(how, ())

        product = (x * 0.5,) if how == "argument" else ()
        outputs = mlx_norms.fuse(f)(x, r, *product)
        seen = operations(*outputs[:2])
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


class TestSumsOfThree:
    """Of which the first sum is rounded, too."""

    ORDERS = {
        "left": lambda a, b, c: (a + b) + c,
        "right": lambda a, b, c: a + (b + c),
    }

    @pytest.mark.parametrize("order", ORDERS)
    def test_each_order(self, norm, order):
        for dtype in DTYPES:
            a, b, c = (v.astype(dtype) for v in (x, r, x * 2 + r))
            mx.eval(a, b, c)
            check(norm, lambda a=a, b=b, c=c: self.ORDERS[order](a, b, c))

    def test_late_rounding(self, norm):
        """With a weight 1 + w the sum is MLX's, too."""
        a, b, c = (v.astype(mx.bfloat16) for v in (x, r, x * 2 + r))

        def f():
            h = a + (b + c)
            weight, *bias = (p.astype(mx.bfloat16) for p in norm.parameters)
            return norm(h, 1 + weight, *bias), h

        (_, h), report = run_patched(f)
        assert report.reasons == {FUSED: 1} and report.offsets == 1
        assert_same_bits(h, f()[1])

    def test_a_first_sum_that_others_hold(self, norm):
        kept, y = [], x * 2 + r
        mx.eval(y)

        def make():
            kept.append(x + r)
            return kept[-1] + y

        check(norm, make, left={"Add": 1})

    def test_sums_of_four(self, norm):
        y, z = x * 2, r * 3
        mx.eval(y, z)
        check(norm, lambda: (x + y) + (r + z), left={"Add": 1})

    def test_a_row_for_all(self, norm):
        row = factor((32,))
        check(norm, lambda: (x + r) + row)

    def test_one_element_for_a_row(self, norm):
        one = factor((1,))
        check(norm, lambda: (x + r) + one, reasons={REPEATED: 1})
        check(norm, lambda: x + (r + one), left={"Add": 1})

    def test_on_another_stream(self, norm):
        s = mx.new_stream(mx.default_device())
        check(norm, lambda: x + mx.add(r, 2 * x, stream=s), left={"Add": 1, "Multiply": 1})

    def test_gradients(self, norm):
        def loss(a, b, c):
            n, h = of(norm, a + (b + c))
            return (mx.tanh(n) * h).sum()

        def f():
            return mx.grad(loss, argnums=(0, 1, 2))(x, r, 2 * x)

        results, report = run_patched(f)
        assert report.reasons == {FUSED: 1}
        assert_close(results, run_stock(f))
