"""Sums fused into norms inside of MLX's transforms: where it is right, and only there.

test_fusion.py has all its graphs in each of them, with all that they take traced.
"""

from functools import partial

import mlx.core as mx
import mlx.nn as nn
import pytest

import mlx_norms
from support.inputs import normal
from support.patched_runs import (
    ALONE,
    DIMS,
    FUSED,
    NORMS,
    ROWS,
    TRACED,
    assert_close,
    check,
    run_patched,
    run_stock,
    stock_norms,
)

pytestmark = [
    pytest.mark.usefixtures("backend"),
    pytest.mark.parametrize("norm", NORMS, ids=lambda norm: norm.name),
]

SHAPE = (ROWS, DIMS)


@pytest.fixture(scope="module", autouse=True)
def arrays(backend):
    """x, r and a matrix, made on the device under test."""
    global x, r, matrix
    x, r = (normal(SHAPE, mx.float32, seed=seed) for seed in ("x", "r"))
    matrix = normal((DIMS, DIMS), mx.float32, seed="matrix", std=0.1)
    mx.eval(x, r, matrix)


def block_of(norm):
    """Two residual additions, each followed by a norm, as in a transformer's block."""

    def block(x, r, *parameters):
        h = x + r
        o = h + mx.tanh(norm(h, *parameters) @ matrix)
        return (o * norm(o, *parameters)).sum()

    return block


def product(norm):
    """A loss of x and parameters: the sum times its norm."""

    def f(x, *parameters):
        h = x + r
        return (h * norm(h, *parameters)).sum()

    return f


def all_arguments(norm):
    return tuple(range(2 + len(norm.parameters)))


def parameter_numbers(norm, first=0):
    return tuple(range(first, first + len(norm.parameters)))


class TestGrad:
    def test_made_before_the_patch(self, norm):
        """It makes no pass, but evaluation does over what it returned."""
        f = mx.grad(block_of(norm), argnums=all_arguments(norm))
        check(lambda: f(x, r, *norm.parameters), {FUSED: 2})

    def test_of_the_operands(self, norm):
        """Frozen parameters are no tracers."""
        check(lambda: mx.grad(block_of(norm), argnums=(0, 1))(x, r, *norm.parameters), {FUSED: 2})

    def test_of_the_parameters(self, norm):
        """The sum is none of grad's, so it must not come to depend on what is."""
        numbers = parameter_numbers(norm)
        check(lambda: mx.grad(partial(product(norm), x), numbers)(*norm.parameters), {TRACED: 1})

    def test_of_the_last_parameter(self, norm):
        *frozen, last = norm.parameters
        check(lambda: mx.grad(partial(product(norm), x, *frozen))(last), {TRACED: 1})

    def test_of_parameters_and_an_operand(self, norm):
        numbers = (0, *parameter_numbers(norm, 1))
        check(lambda: mx.grad(product(norm), numbers)(x, *norm.parameters), {FUSED: 1})

    def test_of_parameters_with_the_sum_evaluated_inside(self, norm):
        def f(*parameters):
            h = x + r
            n = norm(h, *parameters)
            mx.eval(h)
            mx.eval(n)
            return (h * n).sum()

        check(lambda: mx.grad(f, parameter_numbers(norm))(*norm.parameters), {ALONE: 1})

    @pytest.mark.parametrize("evaluated", ["sum", "norm", "both"])
    def test_of_operands_with_the_pair_evaluated_inside(self, norm, evaluated):
        """An evaluated tracer keeps its graph, but the pass finds nothing pending."""

        def f(x):
            h = x + r
            n = norm(h, *norm.parameters)
            mx.eval({"sum": [h], "norm": [n], "both": [h, n]}[evaluated])
            return (h * n).sum()

        check(lambda: mx.grad(f)(x), {ALONE: 1})

    def test_evaluated_before_the_norm(self, norm):
        def f(x):
            h = x + r
            mx.eval(h)
            return (h * norm(h, *norm.parameters)).sum()

        check(lambda: mx.grad(f)(x), {ALONE: 1})

    def test_of_parameters_with_a_sum_of_outside(self, norm):
        """It stays what it is."""

        def f():
            h = x + r
            gradient = mx.grad(
                lambda *parameters: (h * norm(h, *parameters)).sum(), parameter_numbers(norm)
            )
            return gradient(*norm.parameters), h * 2

        check(f, {ALONE: 1})

    def test_of_parameters_with_a_sum_of_outside_evaluated_inside(self, norm):
        def f():
            h = x + r

            def inner(*parameters):
                n = norm(h, *parameters)
                mx.eval(h)
                return (h * n).sum()

            return mx.grad(inner, parameter_numbers(norm))(*norm.parameters), h * 2

        check(f, {ALONE: 1})

    def test_of_something_else_with_a_sum_of_outside(self, norm):
        """Sum and parameters are both constants here."""

        def f():
            h = x + r
            gradient = mx.grad(lambda a: (a * h * norm(h, *norm.parameters)).sum())
            return gradient(r), h * 2

        check(f, {FUSED: 1})

    @pytest.mark.parametrize("made", ["while patched", "before"])
    def test_of_parameters_inside_that_of_an_operand(self, norm, made):
        """A tracer of one transform and one of another. The outer transform's pass sees the inner
        gradients, but no norm; the inner one's leaves the sum, which is the outer function's."""

        def outer(x):
            h = x + r
            inner = mx.grad(
                lambda *parameters: (h * norm(h, *parameters)).sum(), parameter_numbers(norm)
            )
            return sum((g * g).sum() for g in inner(*norm.parameters)) + (h * h).sum()

        unpatched = mx.grad(outer)
        check(lambda: (unpatched if made == "before" else mx.grad(outer))(x), {ALONE: 1})

    def test_second_order(self, norm):
        def slope(x, r):
            return (mx.grad(block_of(norm))(x, r, *norm.parameters) * r).sum()

        check(lambda: mx.grad(slope, argnums=(0, 1))(x, r), {FUSED: 2})

    @pytest.mark.parametrize("used", ["sum", "norm"])
    def test_of_one_output(self, norm, used):
        """The other one is returned beside it."""

        def f(x, *parameters):
            h = x + r
            outputs = {"sum": h, "norm": norm(h, *parameters)}
            return (outputs[used] * r).sum(), outputs

        def run():
            numbers = (0, *parameter_numbers(norm, 1))
            return mx.value_and_grad(f, numbers)(x, *norm.parameters)

        _, gradients = check(run, {FUSED: 1})
        if used == "sum":
            assert mx.array_equal(gradients[0], r)
            assert not any(mx.any(g) for g in gradients[1:])

    @pytest.mark.parametrize("used, reason", [("sum", ALONE), ("norm", FUSED)])
    def test_of_all_that_is_returned(self, norm, used, reason):
        """A norm that is not returned is not in the graph."""

        def f(x, *parameters):
            h = x + r
            n = norm(h, *parameters)
            return [{"sum": h, "norm": n}[used]]

        check(lambda: mx.vjp(f, [x, *norm.parameters], [r])[1], {reason: 1})

    def test_the_sum_is_returned_beside_the_loss(self, norm):
        def f(x):
            h = x + r
            n = norm(h, *norm.parameters)
            return (n * n * r).sum(), h

        check(lambda: mx.value_and_grad(f)(x), {FUSED: 1})

    def test_jvp(self, norm):
        """No pass is made within, but evaluation finds the sums and norms of its results."""
        arguments = [x, r, *norm.parameters]
        tangents = [r, x, *norm.parameters[::-1]]
        check(lambda: mx.jvp(block_of(norm), arguments, tangents), {ALONE: 2}, others=2)

    def test_stop_gradient_of_the_sum_before(self, norm):
        def f(x):
            h = x + r
            stopped = mx.stop_gradient(h)
            return (stopped * norm(h, *norm.parameters)).sum()

        check(lambda: mx.grad(f)(x), {FUSED: 1})

    def test_norm_of_the_stopped_sum(self, norm):
        def f(x):
            h = x + r
            return (h * norm(mx.stop_gradient(h), *norm.parameters)).sum()

        check(lambda: mx.grad(f)(x), {ALONE: 1})


class TestCompile:
    def test_constant_parameters(self, norm):
        def f():
            parameters = norm.parameters
            compiled = mx.compile(lambda x, r: block_of(norm)(x, r, *parameters))
            return [compiled(x, r), compiled(r, 2 * x)]

        check(f, {FUSED: 2})

    def test_shapeless(self, norm):
        def f():
            compiled = mx.compile(block_of(norm), shapeless=True)
            calls = [(x, r), (x[:2], r[:2]), (mx.tile(x, (3, 1)), mx.tile(r, (3, 1)))]
            return [compiled(*call, *norm.parameters) for call in calls]

        check(f, {FUSED: 2})

    def test_gradient_of_compiled(self, norm):
        def f():
            compiled = mx.compile(block_of(norm))
            return mx.grad(compiled, argnums=all_arguments(norm))(x, r, *norm.parameters)

        check(f, {FUSED: 2})

    def test_parameters_of_the_compiled_with_a_sum_of_outside(self, norm):
        """Left while they are traced; evaluation fuses what is compiled."""

        def f():
            h = x + r
            compiled = mx.compile(lambda *parameters: (norm(h, *parameters) * h).sum())
            return compiled(*norm.parameters), (h * 2).sum()

        check(f, {FUSED: 1})

    def test_constant_parameters_and_a_sum_of_outside(self, norm):
        """What a compiled function captures is a constant of it, pending or not."""

        def f():
            h = x + r
            parameters = norm.parameters
            compiled = mx.compile(lambda a: (norm(h, *parameters) @ a).sum())
            return compiled(matrix), compiled(2 * matrix), h * 2

        check(f, {FUSED: 1})

    def test_norm_of_the_output_of_a_compiled_sum(self, norm):
        """Each call has a graph of its own, so the next call's sum is a sum again."""

        def f():
            compiled = mx.compile(lambda x, r: (x + r, x @ r.T))
            h, product = compiled(x, r)
            n = norm(h, *norm.parameters)
            return h + n, product, compiled(2 * x, r)

        check(f, {FUSED: 1})

    @pytest.mark.parametrize("first", ["x", "r"])
    def test_norm_of_a_sum_compiled_without_shapes(self, norm, first):
        """It is a node of compile's own, and no such node in grad, which compiles nothing."""

        def f(x, r):
            add = mx.compile(lambda a, b: a + b, shapeless=True)
            h = add(x, r) if first == "x" else add(r, x)
            return norm(h, *norm.parameters), h

        check(lambda: f(x, r), {FUSED: 1})
        gradient = mx.grad(lambda x, r: sum((a * x).sum() for a in f(x, r)), argnums=(0, 1))
        check(lambda: gradient(x, r), {FUSED: 1})

    @pytest.mark.parametrize(
        "compiled",
        [
            lambda x, r: x + x,
            lambda x, r: x + 1.0,
            lambda x, r: x + r[0],
            lambda x, r: x + r.sum(axis=1, keepdims=True),
            lambda x, r: x + r + x,
            lambda x, r: (x + r) + (x + r),
            lambda x, r: x + (r + 1.0),
            lambda x, r: x + x.astype(mx.float16),
            lambda x, r: mx.broadcast_arrays(x, r)[0] + mx.broadcast_arrays(x, r)[0],
            lambda x, r: mx.broadcast_arrays(x, r)[1] + mx.broadcast_arrays(x, r)[1],
        ],
    )
    def test_norm_of_other_sums_compiled_without_shapes(self, norm, compiled):
        def f():
            h = mx.compile(compiled, shapeless=True)(x, r)
            return norm(h, *norm.parameters), h

        check(f, {ALONE: 1})

    def test_norm_of_a_sum_that_compile_took(self, norm):
        def f():
            compiled = mx.compile(lambda x, r: mx.tanh(x) + r)
            h = compiled(x, r)
            return norm(h, *norm.parameters), h

        check(f, {ALONE: 1})

    def test_compiled_inside_of_compiled(self, norm):
        def f():
            parameters = norm.parameters
            inner = mx.compile(block_of(norm))
            outer = mx.compile(lambda x: inner(x, r, *parameters) + inner(r, x, *parameters))
            return [outer(x), outer(matrix[:ROWS])]

        check(f, {FUSED: 4})

    def test_with_state(self, norm):
        """Parameters that are neither arguments nor constants, as in a compiled training step."""

        def f():
            state = {"parameters": norm.parameters}

            def step(x):
                def loss(parameters):
                    return block_of(norm)(x, r, *parameters)

                value, gradients = mx.value_and_grad(loss)(state["parameters"])
                state["parameters"] = [
                    p - 0.1 * g for p, g in zip(state["parameters"], gradients, strict=True)
                ]
                return value

            compiled = mx.compile(step, inputs=state, outputs=state)
            return [compiled(x), compiled(x)], state["parameters"]

        check(f, {FUSED: 2})


class TestVmap:
    """No pass is made within. Evaluation, and a transform around, find what it made of the sums and
    norms that were called: others, which count for no call."""

    def test_operands(self, norm):
        f = mx.vmap(lambda x, r: block_of(norm)(x, r, *norm.parameters))
        check(lambda: f(mx.stack([x, 2 * x]), mx.stack([r, 3 * r])), {ALONE: 2}, others=2)

    def test_rows(self, norm):
        f = mx.vmap(lambda x, r: block_of(norm)(x, r, *norm.parameters))
        check(lambda: f(x, r), {ALONE: 2}, others=2)

    def test_one_operand_along_another_axis(self, norm):
        """The axis is moved between the sum and its norm."""

        def f(x):
            h = x + r
            return h + norm(h, *norm.parameters), h

        mapped = mx.vmap(f, in_axes=1, out_axes=(1, 0))
        check(lambda: mapped(mx.stack([x, 2 * x], axis=1)), {ALONE: 1})

    def test_operand_and_parameters(self, norm):
        f = mx.vmap(lambda x, *parameters: block_of(norm)(x, r, *parameters))
        stacks = [mx.stack([p, 2 * p]) for p in norm.parameters]
        check(lambda: f(mx.stack([x, 2 * x]), *stacks), {ALONE: 2}, others=2)

    def test_parameters_with_a_sum_of_outside(self, norm):
        """They become products after a norm without any."""

        def f():
            h = x + r
            stacks = [mx.stack([p, 2 * p]) for p in norm.parameters]
            return mx.vmap(lambda *parameters: norm(h, *parameters) * 1.0)(*stacks), h * 2

        check(f, {ALONE: 1}, others=1)

    def test_gradient_of_mapped(self, norm):
        def f(stack):
            return mx.vmap(lambda x: block_of(norm)(x, r, *norm.parameters))(stack).sum()

        check(lambda: mx.grad(f)(mx.stack([x, 2 * x])), {ALONE: 2}, others=2)

    def test_mapped_gradient(self, norm):
        def f(stack):
            return mx.vmap(mx.grad(lambda x: block_of(norm)(x, r, *norm.parameters)))(stack)

        check(lambda: f(mx.stack([x, 2 * x])), {ALONE: 2}, others=2)

    def test_mapped_gradient_of_parameters(self, norm):
        """The sum is vmap's, the parameters are grad's: the sum must not depend on them."""

        def f(x):
            def loss(*parameters):
                h = x + r
                return (h * norm(h, *parameters)).sum()

            return mx.grad(loss, parameter_numbers(norm))(*norm.parameters)

        check(lambda: mx.vmap(f)(mx.stack([x, 2 * x])), {ALONE: 1}, others=1)

    def test_parameters_that_the_sum_depends_on(self, norm):
        def f(a):
            h = a + a[::-1]
            return norm(h, *(a[i] for i in range(len(norm.parameters)))), h

        check(lambda: mx.vmap(f)(mx.stack([x, 2 * x])), {ALONE: 1}, others=1)

    def test_compiled_mapped(self, norm):
        def f(stack):
            return mx.compile(mx.vmap(lambda x: block_of(norm)(x, r, *norm.parameters)))(stack)

        check(lambda: f(mx.stack([x, 2 * x])), {ALONE: 2}, others=2)


@pytest.mark.usefixtures("no_fusion")
@pytest.mark.parametrize(
    ("outer", "transform", "reason"),
    [
        ("grad", "vmap", ALONE),
        ("grad", "compile", FUSED),
        ("vmap", "vmap", ALONE),
        ("compile", "vmap", ALONE),
    ],
)
class TestParametersOfATransformInsideThatOfTheSum:
    """All are tracers, and a sum that was fused within would depend on parameters that it outlives.
    It is fused once, by the outer function's pass or at evaluation."""

    @staticmethod
    def run(norm, outer, transform, use):
        def normalize(h):
            def f(*parameters):
                return norm(h, *parameters) * 1.0

            if transform == "vmap":
                return mx.vmap(f)(*(mx.stack([p, 2 * p]) for p in norm.parameters))
            return mx.compile(f)(*norm.parameters)

        def loss(x):
            h = x + r
            return use(h, normalize(h)).sum()

        if outer == "vmap":
            return mx.vmap(loss)(mx.stack([x, 2 * x]))
        return getattr(mx, outer)(loss)(x)

    @pytest.mark.parametrize(
        "use", [lambda h, n: n * r, lambda h, n: n * h], ids=["sum not used", "sum used"]
    )
    def test_fused_outside(self, norm, outer, transform, reason, use):
        def f():
            return self.run(norm, outer, transform, use)

        results, report = run_patched(f)
        assert report.reasons == {reason: 1}
        assert report.fused == 1
        with stock_norms():  # and compilation on: it passes no gradient to what it captures
            assert_close(results, f())


def test_argument_that_an_inner_gradient_has_reached(norm):
    """MLX takes the flag off it, by which it would be known for what compile traces with."""

    def f():
        h = x + r

        def inner(*arguments):
            parameters = [2 * a for a in arguments]
            mx.grad(lambda q: sum((p * q).sum() for p in parameters))(arguments[0])
            return norm(h, *parameters), arguments[0] + 1

        return mx.compile(inner)(*norm.parameters), h

    check(f, {FUSED: 1})  # at evaluation, once it is compiled


class TestCheckpoint:
    """The function runs once forward and once more for its gradient."""

    def test_constant_parameters(self, norm):
        parameters = norm.parameters

        def f():
            checkpointed = mx.checkpoint(lambda x, r: block_of(norm)(x, r, *parameters))
            return mx.grad(checkpointed, argnums=(0, 1))(x, r)

        check(f, {FUSED: 4})

    def test_sum_passed_in(self, norm):
        """Forward the argument is the caller's Add; for the gradient it is a copy."""

        def f(x, r):
            h = x + r
            inner = mx.checkpoint(lambda h: mx.tanh(norm(h, *norm.parameters)))
            return (inner(h) + h).sum()

        check(lambda: mx.grad(f, argnums=(0, 1))(x, r), {FUSED: 1, ALONE: 1})

    def test_parameters_of_outside(self, norm):
        """Tracers that the checkpointed function does not get as arguments."""

        def f(x, r, *parameters):
            stopped = [mx.stop_gradient(p) for p in parameters]
            return mx.checkpoint(lambda x, r: block_of(norm)(x, r, *stopped))(x, r)

        check(lambda: mx.grad(f, argnums=(0, 1))(x, r, *norm.parameters), {FUSED: 4})


class TestCapturedTracers:
    """A pass in an inner function leaves what is an outer transform's: else that finds no path."""

    def by(self, transform):
        """Transforms made before a patch know nothing of passes around."""
        before = getattr(mx, transform)
        return [before, lambda *args, **options: getattr(mx, transform)(*args, **options)]

    def test_the_outer_argument_is_pending(self, norm):
        inners = [(lambda f: mx.grad(f), 2 * r), (lambda f: mlx_norms.fuse(f), r * r)]
        for outer in self.by("grad"):
            for inner, expected in inners:

                def f(outer=outer, inner=inner):
                    a = norm(x + r, *norm.parameters)
                    return outer(lambda a: inner(lambda b: (a * b * b).sum())(r).sum())(a)

                assert_close(run_patched(f)[0], expected)

    def test_a_second_derivative(self, norm):
        shift = normal((DIMS,), mx.float32, seed="shift")

        def f(outer):
            w = shift + 0.5

            def inner(a):
                loss = lambda b: (mx.tanh(norm(b, w, *norm.parameters[1:]) + w) * a).sum()  # noqa: E731
                return mx.grad(loss)(a)

            return outer(lambda a: (mx.checkpoint(inner)(a) ** 2).sum())(x)

        for outer in self.by("grad"):
            assert_close(
                run_patched(lambda outer=outer: f(outer))[0], run_stock(lambda: f(mx.grad))
            )

    def test_within_vmap(self, norm):
        a = normal((2, 1, 1, ROWS, DIMS), mx.float32, seed="a")
        w = normal((DIMS,), mx.float32, seed="w")
        mx.eval(a, w)

        def f(a):
            y = mx.fast.rope(norm(a, 1 + w), 16, traditional=False, base=1e4, scale=1.0, offset=0)
            return y + mx.grad(lambda v: mx.tanh(y * v).sum())(w)

        for outer in self.by("vmap"):
            assert_close(
                run_patched(lambda outer=outer: outer(f)(a))[0], run_stock(lambda: outer(f)(a))
            )

    def test_a_returned_primal(self, norm):
        """What MLX copied for a vjp is known by its node, also where it is a result."""
        cotangent = normal(SHAPE, mx.float32, seed="cotangent")

        def f(fuse):
            above = norm(x + r, *norm.parameters)

            def outer(primal):
                def inner(h):
                    return norm(h + r, *norm.parameters), above, primal

                y, _, again = fuse(inner)(x)
                return y + mx.tanh(again)

            return mx.vjp(outer, [above], [cotangent])[1][0]

        assert_close(run_patched(lambda: f(mlx_norms.fuse))[0], run_stock(lambda: f(lambda g: g)))

    @pytest.mark.parametrize("then", [lambda y: mx.eval(y) or y, nn.silu], ids=["eval", "silu"])
    @pytest.mark.parametrize("through", ["fuse", "checkpoint"])
    def test_an_inner_derivative_has_ended(self, norm, then, through):
        """MLX takes the flag of a tracer from all that the inner one went through."""

        def f(fuse):
            def loss(a):
                def inner(h):
                    y = norm(h + r, *norm.parameters) * (1 + mx.tanh(r))
                    mx.grad(lambda b: (b * h).sum())(r)
                    return y

                return (then(fuse(inner)(a)) * r).sum()

            return mx.grad(loss)(x)

        fuse = mlx_norms.fuse if through == "fuse" else lambda g: mx.checkpoint(g)
        assert_close(run_patched(lambda: f(fuse))[0], run_stock(lambda: f(lambda g: g)))


class TestCustomFunction:
    def test_its_own_gradient_holds(self, norm):
        def f(x):
            return custom(norm)(x + r).sum()

        gradient = check(lambda: mx.grad(f)(x), {FUSED: 1})
        assert mx.array_equal(gradient, mx.full(SHAPE, 7.0))

    def test_its_own_gradient_and_a_residual(self, norm):
        def f(x):
            h = x + r
            return (custom(norm)(h) + h).sum()

        gradient = check(lambda: mx.grad(f)(x), {FUSED: 1})
        assert mx.array_equal(gradient, mx.full(SHAPE, 8.0))


def custom(norm):
    """A norm with a gradient that is not a norm's."""

    @mx.custom_function
    def f(h):
        return norm(h, *norm.parameters)

    @f.vjp
    def vjp(primals, cotangent, output):
        return 7 * cotangent

    return f
