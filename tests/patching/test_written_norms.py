"""Norms that models write in MLX's operations: found however they are written, by every pass."""

import itertools
from types import SimpleNamespace

import mlx.core as mx
import mlx.nn
import numpy as np
import pytest

import mlx_norms
from mlx_norms import _ext
from support.inputs import normal
from support.norm_case import DTYPES
from support.patched_runs import operations
from support.written_norms import EPS, FORMS, WIDTH, root, same

pytestmark = pytest.mark.usefixtures("backend")

# Relative to the largest value, of results that are rounded at most twice.
BOUNDS = {mx.float32: 2e-6, mx.float16: 1.2e-3, mx.bfloat16: 9e-3}


def named(form):
    return form.name


forms = pytest.mark.parametrize("form", FORMS, ids=named)


def code_of(form):
    def code(x, *parameters):
        layer = SimpleNamespace(eps=EPS, **dict(zip(form.parameters, parameters, strict=True)))
        return form.call(layer, x)

    return code


def exact_code(form):
    names = list(form.parameters)
    return lambda x, *parameters: form.exact(x, **dict(zip(names, parameters, strict=True)))


def arrays_of(form, dtype):
    layer = form.layer(dtype)
    return [form.x(dtype), *(layer[name] for name in form.parameters)]


def exact(a):
    return np.array(a.astype(mx.float32)).astype(np.float64)


def in_float64(code, arrays):
    with mx.stream(mx.cpu):
        results = code(*(a.astype(mx.float64) for a in arrays))
        return [np.array(a) for a in (results if isinstance(results, (list, tuple)) else [results])]


def error(got, expected):
    assert got.shape == expected.shape
    return np.max(np.abs(exact(got) - expected)) / np.max(np.abs(expected))


def turns(values):
    """Of each form all dtypes by the first of these ways, and one in turn by the others.

    Which pass or transform finds a norm knows nothing of its dtype.
    """
    for (i, form), (j, value) in itertools.product(enumerate(FORMS), enumerate(values)):
        for k, dtype in enumerate(DTYPES):
            if j == 0 or (i + j) % len(DTYPES) == k:
                yield pytest.param(form, dtype, value, id=f"{form.name}-{dtype}-{value}")


@pytest.mark.parametrize("form, dtype, how", list(turns(("layer", "eval", "fuse", "compile"))))
def test_results(form, dtype, how):
    """Of a layer's call, as models have it, and of the code itself."""
    layer, arrays = form.layer(dtype), arrays_of(form, dtype)
    stock = layer(arrays[0])
    with mlx_norms.patched():
        make = {"fuse": mlx_norms.fuse, "compile": mx.compile}.get(how, lambda code: code)
        y = layer(arrays[0]) if how == "layer" else make(code_of(form))(*arrays)
        if how in ("layer", "eval"):
            _ext.fuse_at_eval([y], True, True)
        report = mlx_norms.report()
        assert (report.written, report.calls) == ({form.op: 1} if form.inline else {}, 0)
    if form.inline:
        seen = operations(y)
        assert sum("norms::" in name for name in seen) == 1
        assert not {"Sum", "Rsqrt", "Sqrt"} & set(seen)
    assert (y.dtype, y.shape) == (stock.dtype, stock.shape)
    [expected] = in_float64(exact_code(form), arrays)
    ours = error(y, expected)
    assert ours <= BOUNDS[dtype]
    # As accurate as the code, up to one rounding of the other operations.
    assert ours <= error(stock, expected) + BOUNDS[dtype] / 8


def patched(layer, x):
    with mlx_norms.patched():
        y = layer(x)
        mx.eval(y)
    return y


@pytest.mark.parametrize("form", [form for form in FORMS if form.wide], ids=named)
@pytest.mark.parametrize("dtype", DTYPES[1:], ids=str)
def test_casts_are_where_the_code_has_them(form, dtype):
    """16 bits that the code rounds once or twice, of what it computes in float32, are the same."""
    layer, x = form.layer(dtype), form.x(dtype)
    stock, y = layer(x), patched(layer, x)
    different = np.mean(exact(y) != exact(stock))
    # The few are of float32 results between two values of 16 bits.
    assert different <= 0.01


@forms
def test_weights_of_another_dtype(form):
    layer, x = form.layer(mx.float32), form.x(mx.bfloat16)
    stock, y = layer(x), patched(layer, x)
    assert y.dtype == stock.dtype
    [expected] = in_float64(exact_code(form), [x, *(layer[name] for name in form.parameters)])
    assert error(y, expected) <= BOUNDS[mx.bfloat16]


def vjp(code, arrays, cotangent):
    [y], gradients = mx.vjp(lambda *a: [code(*a)], arrays, [cotangent])
    return y, gradients


def by_loss(transform):
    """The result and the gradients, by a transform of a loss."""

    def run(code, arrays, cotangent):
        def loss(*arrays):
            y = code(*arrays)
            return (y.astype(mx.float32) * cotangent.astype(mx.float32)).sum(), y

        return transform(loss, arrays)

    return run


def value_and_grad(loss, arrays):
    (_, y), gradients = mx.value_and_grad(loss, list(range(len(arrays))))(*arrays)
    return y, gradients


def grad(loss, arrays):
    return loss(*arrays)[1], mx.grad(lambda *a: loss(*a)[0], list(range(len(arrays))))(*arrays)


def of_a_layer(loss, arrays):
    """As mlx.nn.value_and_grad, of the parameters of a layer."""
    layer = mlx.nn.Module()
    names = [f"p{i}" for i in range(len(arrays))]
    dict.update(layer, zip(names, arrays, strict=True))
    call = mlx.nn.value_and_grad(layer, lambda: loss(*(layer[name] for name in names)))
    (_, y), gradients = call()
    return y, [gradients[name] for name in names]


def stacked(code):
    return lambda x, *others: mx.vmap(lambda x: code(x, *others))(mx.stack([x, x]))[0]


TRANSFORMS = {
    "vjp": vjp,
    "of compiled": lambda code, *given: vjp(mx.compile(code), *given),
    "of shapeless": lambda code, *given: vjp(mx.compile(code, shapeless=True), *given),
    "of checkpoint": lambda code, *given: vjp(mx.checkpoint(code), *given),
    "of vmap": lambda code, *given: vjp(stacked(code), *given),
    "value_and_grad": by_loss(value_and_grad),
    "grad": by_loss(grad),
    "checkpoint": by_loss(lambda loss, arrays: value_and_grad(mx.checkpoint(loss), arrays)),
    "compiled": by_loss(
        lambda loss, arrays: mx.compile(lambda *a: value_and_grad(loss, a))(*arrays)
    ),
    "of a layer": by_loss(of_a_layer),
}


@pytest.mark.usefixtures("no_fusion")
@pytest.mark.parametrize("form, dtype, transform", list(turns(TRANSFORMS)))
def test_gradients(form, dtype, transform):
    arrays, cotangent = arrays_of(form, dtype), normal(form.shape, dtype, seed="cotangent")
    stock = vjp(code_of(form), arrays, cotangent)[1]
    mx.eval(stock)
    with mlx_norms.patched():
        y, gradients = TRANSFORMS[transform](code_of(form), arrays, cotangent)
        # Before anything is evaluated, where a pass would find it, too.
        assert mlx_norms.report().written.get(form.op, 0) >= form.inline
        mx.eval(y, gradients)
    [expected] = in_float64(exact_code(form), arrays)
    assert error(y, expected) <= BOUNDS[dtype]

    def gradients_of(*a):
        return mx.vjp(exact_code(form), list(a), [cotangent.astype(mx.float64)])[1]

    gradients = [gradients] if isinstance(gradients, mx.array) else gradients
    for ours, theirs, wanted in zip(
        gradients, stock, in_float64(gradients_of, arrays), strict=True
    ):
        # What follows the norm may be MLX's own sum in 16 bits.
        assert error(ours, wanted) <= max(2 * BOUNDS[dtype], error(theirs, wanted))


def test_a_pending_sum_is_fused():
    form = FORMS[0]
    layer, x, r = form.layer(), form.x(), normal(form.shape, mx.float32, seed="residual")
    with mlx_norms.patched():
        h = x + r
        y = layer(h)
        mx.eval(h, y)
        assert mlx_norms.report().fused == mlx_norms.report().written[form.op] == 1
    assert mx.array_equal(h, x + r, stream=mx.cpu)
    [expected] = in_float64(exact_code(form), [x + r, layer.weight])
    assert error(y, expected) <= BOUNDS[mx.float32]


def given(*seeds, shape=(2, 5, WIDTH), dtype=mx.float32):
    arrays = [normal(shape, dtype, seed=seed, mean=0.25) for seed in seeds]
    mx.eval(arrays)
    return arrays


class TestAmidOtherCode:
    def test_between_operations(self):
        def block(x, w):
            h = mx.tanh(x) + 1
            return mx.exp(h * root(h) * w).sum(-1)

        [x], w = given("x"), normal((WIDTH,), mx.float32, seed="w")
        with mlx_norms.patched():
            y = mx.compile(block)(x, w)
            assert mlx_norms.report().written == {"rms_norm": 1}
        assert error(y, in_float64(block, [x, w])[0]) <= 2e-6

    def test_several(self):
        def block(x, w):
            for _ in range(3):
                x = x + mx.tanh(x * root(x) * w)
            return x

        [x], w = given("x"), normal((WIDTH,), mx.float32, seed="w")
        with mlx_norms.patched():
            y = mlx_norms.fuse(block)(x, w)
            report = mlx_norms.report()
        assert report.written == {"rms_norm": 3}
        assert report.fused == 2  # x itself is no sum
        assert error(y, in_float64(block, [x, w])[0]) <= 2e-6

    def test_two_of_one_input(self):
        def block(x, v, w):
            return x * root(x) * v, x * root(x) * w

        [x], (v, w) = given("x"), given("v", "w", shape=(WIDTH,))
        with mlx_norms.patched():
            ys = mx.compile(block)(x, v, w)
            assert mlx_norms.report().written == {"rms_norm": 2}
        for y, expected in zip(ys, in_float64(block, [x, v, w]), strict=True):
            assert error(y, expected) <= 2e-6

    def test_a_weight_that_is_computed(self):
        def block(x, w):
            return x * root(x) * mx.tanh(w)

        [x], w = given("x"), normal((WIDTH,), mx.float32, seed="w")
        with mlx_norms.patched():
            y = mx.compile(block)(x, w)
            assert mlx_norms.report().written == {"rms_norm": 1}
        assert operations(y)["Multiply"] == 0
        assert error(y, in_float64(block, [x, w])[0]) <= 2e-6

    def test_a_captured_pending_input(self):
        [x] = given("x")
        h = mx.tanh(x)
        with mlx_norms.patched():
            y = mlx_norms.fuse(lambda: h * root(h))()
            assert mlx_norms.report().written == {"rms_norm": 1}
        assert mx.array_equal(h, mx.tanh(x), stream=mx.cpu)
        assert error(y, in_float64(lambda x: mx.tanh(x) * root(mx.tanh(x)), [x])[0]) <= 2e-6

    def test_what_is_stored_has_its_values(self):
        """A function with an effect: what it keeps is computed by its own graph."""
        [x] = given("x")
        kept = []

        def block(x):
            y = x * root(x)
            kept.append(y)
            return mx.exp(y)

        with mlx_norms.patched():
            y = mlx_norms.fuse(block)(x)
        [expected] = in_float64(lambda x: x * root(x), [x])
        assert error(kept[0], expected) <= 2e-6
        assert error(y, np.exp(expected)) <= 4e-6

    def test_state_of_a_compiled_function(self):
        """Its outputs are of one graph with what it returns."""
        [x] = given("x")
        state = {"h": mx.zeros_like(x)}

        def step(x):
            h = x * root(x)
            state["h"] = h
            return mx.exp(h)

        with mlx_norms.patched():
            compiled = mx.compile(step, inputs=state, outputs=state)
            y = compiled(x)
            assert mlx_norms.report().written == {"rms_norm": 1}
        assert operations(y, state["h"])["mlx_norms::RMSNorm"] == 1
        [expected] = in_float64(lambda x: x * root(x), [x])
        assert error(state["h"], expected) <= 2e-6
        assert error(y, np.exp(expected)) <= 4e-6

    def test_a_compiled_function_in_a_checkpointed_one(self):
        """It is compiled there, and has a pass of its own; in a trace it is part of the trace's."""
        [x] = given("x")

        def run():
            inner = mx.compile(lambda x: mx.exp(x * root(x)))
            return mx.checkpoint(lambda x: inner(x) + 1)(x), mx.vjp(inner, [x], [x])[1][0]

        stock = run()
        with mlx_norms.patched():
            ys = run()
            assert mlx_norms.report().written == {"rms_norm": 2}
        for y, expected in zip(ys, stock, strict=True):
            assert error(y, exact(expected)) <= 4e-6

    @pytest.mark.slow
    def test_nested_transforms(self):
        """Of second derivatives, of a gradient in a compiled function, and of vmap in it."""
        [x] = given("x")

        def loss(x):
            return mx.sin(x * root(x)).sum()

        def second(x):
            return mx.grad(lambda x: mx.sin(mx.grad(loss)(x)).sum())(x)

        def mapped(x):
            return mx.vmap(mx.grad(loss))(x)

        for run in (second, mx.compile(second), mapped, mx.compile(mapped)):
            stock = run(x)
            with mlx_norms.patched():
                y = run(x)
            assert error(y, exact(stock)) <= 2e-5
        with mlx_norms.patched():
            y = mx.compile(mapped)(x)  # of whose inner function no graph is looked at
            assert mlx_norms.report().written == {}
        assert error(y, exact(mapped(x))) <= 4e-6


@pytest.mark.parametrize("length, number", [(257, 16.0), (1030, 32.0), (4100, 64.0), (402, 20.0)])
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("divides", [False, True])
def test_a_number_near_the_root_of_the_length(length, number, dtype, divides):
    """It is the root as 16 bits have it, but multiplies in float32: no rms norm's."""

    def code(x):
        x = x.astype(mx.float32)
        over = mx.rsqrt(x.square().sum(-1, keepdims=True) + EPS)
        return x * over / (1 / number) if divides else x * over * number

    x = normal((3, length), dtype, seed="x")
    mx.eval(x)
    with mlx_norms.patched():
        got = mx.compile(code)(x)
    wide = exact(x)
    wide *= number / np.sqrt((wide**2).sum(-1, keepdims=True) + EPS)
    assert error(got, wide) <= 4e-6


def biased(x, weight, bias):
    mean = x.mean(-1, keepdims=True)
    apart = x - mean
    return apart * mx.rsqrt(apart.square().mean(-1, keepdims=True) + EPS) * weight + bias


# Of a layer norm h and others of it: what the next one may take as a sum is h's own bias.
OF_BIASED = {
    "both": lambda h, again, matrix: (h, again(h)),
    "sum": lambda h, again, matrix: again(h) + h,
    "product": lambda h, again, matrix: h + again(h) @ matrix,
    "after": lambda h, again, matrix: again(h + again(h) @ matrix),
    "twice": lambda h, again, matrix: (h, again(again(h))),
    "fast": lambda h, again, matrix: h + mx.fast.layer_norm(h, None, None, EPS) @ matrix,
}


@pytest.mark.parametrize("how", ["eval", "fuse", "compile", "checkpoint"])
@pytest.mark.parametrize("form", OF_BIASED)
def test_a_biased_norm_before_another(form, how):
    def code(x, weight, bias, matrix):
        again = lambda a: biased(a, bias + 1, weight)  # noqa: E731
        return OF_BIASED[form](biased(x, weight, bias), again, matrix)

    shapes = (2, 5, WIDTH), (WIDTH,), (WIDTH,), (WIDTH, WIDTH)
    arrays = [0.3 * normal(shape, mx.float32, seed=i) for i, shape in enumerate(shapes)]
    mx.eval(arrays)
    stock = code(*arrays)
    mx.eval(stock)
    with mlx_norms.patched(projections=how == "eval"):
        transforms = dict(fuse=mlx_norms.fuse, compile=mx.compile, checkpoint=mx.checkpoint)
        got = transforms.get(how, lambda code: code)(code)(*arrays)
        mx.eval(got)
        assert mlx_norms.report().written["layer_norm"] >= 1
    got, stock = ([y] if isinstance(y, mx.array) else y for y in (got, stock))
    for a, b in zip(got, stock, strict=True):
        assert error(a, exact(b)) <= 1e-5


def test_a_weight_of_x_is_left():
    """The norm without it is taken."""

    def code(x):
        return x * root(x) * mx.tanh(x.mean((0, 1)))

    [x] = given("x")
    with mlx_norms.patched():
        y = mx.compile(code)(x)
    assert error(y, in_float64(code, [x])[0]) <= 4e-6


def test_shapeless_graphs_are_left():
    def code(x):
        return x * root(x)

    [x] = given("x")
    with mlx_norms.patched():
        compiled = mx.compile(code, shapeless=True)
        ys = [compiled(x), compiled(x[:1])]
        assert mlx_norms.report().written == {}
    for y, x in zip(ys, (x, x[:1]), strict=True):
        assert error(y, in_float64(code, [x])[0]) <= 2e-6


class TestScopes:
    def code(self, x):
        return mx.exp(x * root(x))

    @pytest.fixture(params=["patch", "patched"])
    def way(self, request):
        def run(function, **options):
            if request.param == "patched":
                with mlx_norms.patched(**options):
                    return function(), mlx_norms.report()
            mlx_norms.patch(**options)
            try:
                return function(), mlx_norms.report()
            finally:
                mlx_norms.unpatch()

        return run

    def test_options(self, way):
        [x] = given("x")
        run = lambda: mx.compile(self.code)(x)  # noqa: E731
        for options, written in [({}, {"rms_norm": 1}), ({"fuse": False}, {})]:
            y, report = way(run, **options)
            assert report.written == written
            assert error(y, in_float64(self.code, [x])[0]) <= 4e-6

    def test_undone(self):
        names = ("compile", "grad", "value_and_grad", "vjp", "checkpoint")
        stock = [getattr(mx, name) for name in names]
        with mlx_norms.patched():
            assert not any(getattr(mx, name) is f for name, f in zip(names, stock, strict=True))
        assert [getattr(mx, name) for name in names] == stock

    def test_a_function_stays_as_it_was_compiled(self):
        [x] = given("x")
        before = mx.compile(self.code)
        stock = before(x)
        mx.eval(stock)
        with mlx_norms.patched():
            during = mx.compile(self.code)
            assert same(before(x), stock)
            assert mlx_norms.report().written == {}
            y = during(x)
            assert mlx_norms.report().written == {"rms_norm": 1}
        # A shape that it has not been compiled for is stock.
        assert operations(during(x))["mlx_norms::RMSNorm"] == 1
        assert operations(during(x[:1]))["mlx_norms::RMSNorm"] == 0
        assert error(y, in_float64(self.code, [x])[0]) <= 4e-6

    def test_a_model(self):
        """Transforms in a patched model's code."""
        test = self

        class Model(mlx.nn.Module):
            def __call__(self, x):
                return mx.compile(test.code)(x)

        [x], model = given("x"), Model()
        mlx_norms.patch(model)
        try:
            model(x)
            assert mlx_norms.report().written == {"rms_norm": 1}
            mx.compile(self.code)(x)
            assert mlx_norms.report().written == {"rms_norm": 1}
        finally:
            mlx_norms.unpatch(model)

    def test_what_mlx_refuses(self):
        with mlx_norms.patched():
            for transform in (mx.compile, mx.grad, mx.value_and_grad, mx.checkpoint):
                with pytest.raises(TypeError):
                    transform(5)(1.0)

    def test_attributes_and_arguments(self):
        def loss(x, *, scale=1.0):
            """Of x."""
            return (x * root(x) * scale).sum()

        [x] = given("x")
        with mlx_norms.patched():
            compiled = mx.compile(loss)
            assert (compiled.__name__, compiled.__doc__) == ("loss", "Of x.")
            value, gradient = mx.value_and_grad(loss, argnums=0)(x, scale=2.0)
            _, by_name = mx.value_and_grad(fun=loss, argnums=[], argnames="scale")(
                x, scale=mx.array(2.0)
            )
        assert error(gradient, exact(mx.grad(loss)(x, scale=2.0))) <= 4e-6
        assert abs(by_name[1]["scale"].item() * 2 - value.item()) <= 1e-3 * abs(value.item())
