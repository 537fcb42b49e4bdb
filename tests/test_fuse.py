"""mlx_norms.fuse: sums fused by building the graph anew, no array changed."""

import mlx.core as mx
import mlx.nn
import pytest

import mlx_norms
from inputs import normal
from patched_runs import (
    DIMS,
    EPS,
    GRAPH_PASS,
    NORMS,
    ROWS,
    assert_close,
    at_all_shapes,
    operations,
)

pytestmark = pytest.mark.usefixtures("backend")

each_norm = pytest.mark.parametrize("norm", NORMS, ids=lambda norm: norm.name)

SHAPE = (ROWS, DIMS)
STOCK = mx.fast.rms_norm


@pytest.fixture(scope="module", autouse=True)
def arrays(backend):
    """x, r and a matrix, made on the device under test."""
    global x, r, matrix
    x, r = (normal(SHAPE, mx.float32, seed=seed) for seed in ("x", "r"))
    matrix = normal((DIMS, DIMS), mx.float32, seed="matrix", std=0.1)
    mx.eval(x, r, matrix)


@pytest.fixture(autouse=True)
def all_shapes():
    with at_all_shapes():
        yield
    assert mx.fast.rms_norm is STOCK


def nodes(*outputs):
    """How many nodes of this package are fused, and how many are not."""
    seen = operations(*outputs)
    fused = seen["mlx_norms::AddRMSNorm"] + seen["mlx_norms::AddLayerNorm"]
    return fused, seen["mlx_norms::RMSNorm"] + seen["mlx_norms::LayerNorm"]


def node(norm):
    return "LayerNorm" if norm.layer else "RMSNorm"


def block_of(norm):
    parameters = norm.parameters
    mx.eval(parameters)

    def block(x, r, parameters=parameters):
        h = x + r
        o = h + mx.tanh(norm(h, *parameters) @ matrix)
        return o * norm(o, *parameters)

    return block


class TestResults:
    @each_norm
    def test_two_sums(self, norm):
        block = block_of(norm)
        got = mlx_norms.fuse(block)(x, r)
        assert nodes(got) == (2, 0)
        assert operations(got)["Add"] == 0
        assert_close(got, block(x, r))

    @each_norm
    def test_sum_and_norm_returned(self, norm):
        def f(x, r):
            h = x + r
            return h, norm(h, *norm.parameters)

        h, n = mlx_norms.fuse(f)(x, r)
        assert operations(h, n) == operations(h) == operations(n)
        assert nodes(h, n) == (1, 0)
        assert_close((h, n), f(x, r))

    @each_norm
    def test_two_norms_of_a_sum(self, norm):
        def f(x, r):
            h = x + r
            return norm(h, *norm.parameters), h, norm(h)

        got = mlx_norms.fuse(f)(x, r)
        assert nodes(*got) == (1, 1)
        assert_close(got, f(x, r))

    @each_norm
    def test_nothing_to_fuse(self, norm):
        def f(x, r):
            return norm(x, *norm.parameters), x * r, x

        got = mlx_norms.fuse(f)(x, r)
        assert nodes(*got) == (0, 1)
        assert_close(got, f(x, r))

    def test_no_norm(self):
        got = mlx_norms.fuse(lambda x: x + x)(x)
        assert operations(got) == {"Add": 1}

    @each_norm
    def test_evaluated_within(self, norm):
        def f(x, r):
            h = x + r
            mx.eval(h)
            return h, norm(h, *norm.parameters)

        got = mlx_norms.fuse(f)(x, r)
        assert nodes(*got) == (0, 1)
        assert_close(got, f(x, r))

    @each_norm
    def test_operations_of_several_outputs_in_between(self, norm):
        def f(x, r):
            h = x + r
            left, right = mx.split(norm(h, *norm.parameters), 2, axis=-1)
            q, k = mx.divmod(left, 0.5)
            return h, right, q * k

        got = mlx_norms.fuse(f)(x, r)
        assert nodes(*got) == (1, 0)
        assert_close(got, f(x, r))

    @each_norm
    def test_on_another_stream(self, norm):
        stream = mx.new_stream(mx.default_device())

        def f(x, r):
            h = mx.add(x, r, stream=stream)
            return h, norm(h, *norm.parameters), norm(h, *norm.parameters, stream=stream)

        got = mlx_norms.fuse(f)(x, r)
        assert nodes(*got) == (1, 1)
        assert_close(got, f(x, r))

    def test_shifted_weight(self):
        w = normal((DIMS,), mx.float32, seed="w")

        def f(x, r):
            return mx.fast.rms_norm(x + r, 1 + w, EPS)

        got = mlx_norms.fuse(f)(x, r)
        assert operations(got) == {"mlx_norms::AddRMSNorm": 1}
        assert_close(got, f(x, r))


class TestParameters:
    @each_norm
    def test_of_the_sum(self, norm):
        def f(x, r):
            h = x + r
            return h, norm(h, *(mx.tanh(h[i]) for i in range(len(norm.parameters))))

        got = mlx_norms.fuse(f)(x, r)
        assert nodes(*got) == (0, 1)
        assert_close(got, f(x, r))

    @each_norm
    def test_of_another_norm_of_the_sum(self, norm):
        """To fuse the second as well would make either sum wait for the other."""

        def f(x, r):
            g, h = x + r, x * 2 + r
            first = norm(g, *norm.parameters[:-1], h[0])
            second = norm(h, *norm.parameters[:-1], g[0])
            return first, second

        got = mlx_norms.fuse(f)(x, r)
        assert nodes(*got) == (1, 1)
        assert_close(got, f(x, r))

    @each_norm
    def test_of_an_earlier_norm(self, norm):
        def f(x, r):
            g = x + r
            first = norm(g, *norm.parameters)
            h = g + x
            return h, norm(h, *norm.parameters[:-1], first[0])

        got = mlx_norms.fuse(f)(x, r)
        assert nodes(*got) == (2, 0)
        assert_close(got, f(x, r))

    @each_norm
    def test_pending_by_many_operations(self, norm):
        w = norm.parameters[0]
        for _ in range(12):
            w = mx.abs(w)

        def f(x, r):
            return norm(x + r, w, *norm.parameters[1:])

        got = mlx_norms.fuse(f)(x, r)
        assert nodes(got) == (0, 1)
        assert_close(got, f(x, r))


class TestNoArrayIsChanged:
    @each_norm
    def test_sum_of_outside(self, norm):
        """Its holder's stays an Add; the norm has a sum of its own."""
        h = x + r
        got = mlx_norms.fuse(lambda a: norm(h, *norm.parameters) * a)(x)
        assert operations(h) == {"Add": 1}
        assert nodes(got) == (1, 0)
        assert_close([got, h], [norm(x + r, *norm.parameters) * x, x + r])

    @each_norm
    def test_what_is_kept_elsewhere(self, norm):
        kept = []

        def f(x, r):
            h = x + r
            n = norm(h, *norm.parameters)
            kept.extend([h, n])
            return n * 2

        got = mlx_norms.fuse(f)(x, r)
        assert operations(kept[0]) == {"Add": 1}
        assert nodes(kept[1]) == (0, 1)
        assert nodes(got) == (1, 0)
        assert_close([got, *kept], [norm(x + r, *norm.parameters) * 2, x + r, kept[1]])

    @each_norm
    @pytest.mark.parametrize("nested", [False, True])
    def test_arguments(self, norm, nested):
        """What the caller computes is the caller's, pending or not."""
        h = x + r

        def f(tree):
            h = tree["h"][0] if nested else tree
            return h, norm(h, *norm.parameters)

        got = mlx_norms.fuse(f)({"h": [h]} if nested else h)
        assert operations(h) == {"Add": 1}
        assert operations(*got) == {"Add": 1, f"mlx_norms::{node(norm)}": 1}
        assert_close(got, [x + r, norm(x + r, *norm.parameters)])

    @each_norm
    def test_pending_above_arguments(self, norm):
        """A norm of stock's and sums above the arguments stay as they are."""
        above = norm(x + r, *norm.parameters)
        before = operations(above)
        got = mlx_norms.fuse(lambda a: norm(a + x, *norm.parameters))(above)
        assert operations(above) == before
        assert nodes(got) == (1, 0)
        assert operations(got) - before == {f"mlx_norms::Add{node(norm)}": 1}

    @each_norm
    def test_keyword_arguments(self, norm):
        h = x + r
        got = mlx_norms.fuse(lambda *, h: norm(h, *norm.parameters))(h=h)
        assert operations(h) == {"Add": 1}
        assert nodes(got) == (0, 1)


class TestTrees:
    def test_any_nesting(self):
        def f(x, r):
            h = x + r
            n = mx.fast.rms_norm(h, None, EPS)
            return {"a": [h, (n, None)], "b": 3, "c": {"d": n * 2, "e": "text"}, "f": (), "g": [r]}

        got, expected = mlx_norms.fuse(f)(x, r), f(x, r)
        assert got["a"][1][1] is None
        assert isinstance(got["a"][1], tuple)
        assert (got["b"], got["c"]["e"], got["f"]) == (3, "text", ())
        assert nodes(got["a"][0], got["a"][1][0], got["c"]["d"]) == (1, 0)
        assert_close(got, expected)

    @pytest.mark.parametrize("value", [None, 3, "text", [], {}, (1, [None])], ids=repr)
    def test_without_arrays(self, value):
        assert mlx_norms.fuse(lambda: value)() == value

    def test_an_array_twice(self):
        def f(x):
            n = mx.fast.rms_norm(x + x, None, EPS)
            return n, [n]

        first, (second,) = mlx_norms.fuse(f)(x)
        assert nodes(first, second) == (1, 0)
        assert mx.array_equal(first, second)

    def test_name(self):
        def f(x):
            """What it does."""
            return x

        assert mlx_norms.fuse(f).__name__ == "f"
        assert mlx_norms.fuse(f).__doc__ == "What it does."

    def test_errors(self):
        def f():
            raise KeyError("mine")

        with pytest.raises(KeyError, match="mine"):
            mlx_norms.fuse(f)()
        assert mx.fast.rms_norm is STOCK

    def test_a_module(self):
        model = mlx.nn.Sequential(
            mlx.nn.Linear(DIMS, DIMS), lambda a: a + x, mlx.nn.RMSNorm(DIMS), mlx.nn.GELU()
        )
        got = mlx_norms.fuse(model)(x)
        assert nodes(got) == (1, 0)
        assert_close(got, model(x))


class TestTransforms:
    @each_norm
    def test_grad_of_fused(self, norm):
        block = block_of(norm)

        def gradients(block):
            def loss(x, r, parameters):
                return (block(x, r, parameters) * r).sum()

            return mx.grad(loss, argnums=(0, 1, 2))(x, r, norm.parameters)

        assert_close(gradients(mlx_norms.fuse(block)), gradients(block))

    @each_norm
    def test_grad_of_parameters(self, norm):
        """Arguments of the fused function, and captured by it."""

        def f(x, parameters):
            h = x + r
            return (h * norm(h, *parameters)).sum()

        expected = mx.grad(f, argnums=1)(x, norm.parameters)
        assert_close(mx.grad(mlx_norms.fuse(f), argnums=1)(x, norm.parameters), expected)

        def captured(parameters):
            return mlx_norms.fuse(lambda x: f(x, parameters))(x)

        assert_close(mx.grad(captured)(norm.parameters), expected)

    @each_norm
    def test_fused_grad(self, norm):
        block = block_of(norm)
        gradient = mx.grad(lambda x, r: (block(x, r) * r).sum(), argnums=(0, 1))
        got = mlx_norms.fuse(gradient)(x, r)
        assert nodes(*got)[0] == 2
        assert_close(got, gradient(x, r))

    @each_norm
    def test_compile(self, norm):
        block = block_of(norm)
        compiled = mx.compile(mlx_norms.fuse(block))
        got = [compiled(x, r), compiled(r, 2 * x)]
        assert nodes(got[1]) == (2, 0)
        assert_close(got, [block(x, r), block(r, 2 * x)])

    @each_norm
    def test_fuse_of_compiled(self, norm):
        """A graph like any other: traced with our norms, it is fused after each call."""
        block = block_of(norm)
        fused = mlx_norms.fuse(mx.compile(block))
        got = [fused(x, r), fused(r, 2 * x)]
        assert nodes(got[0])[0] >= 1
        assert_close(got, [block(x, r), block(r, 2 * x)])

    @each_norm
    def test_vmap(self, norm):
        block = block_of(norm)
        stacks = mx.stack([x, 2 * x]), mx.stack([r, 3 * r])
        assert_close(mx.vmap(mlx_norms.fuse(block))(*stacks), mx.vmap(block)(*stacks))
        got = mlx_norms.fuse(mx.vmap(block))(*stacks)
        assert nodes(got) == (2, 0)
        assert_close(got, mx.vmap(block)(*stacks))

    @each_norm
    def test_checkpoint(self, norm):
        block = block_of(norm)

        def gradients(block):
            return mx.grad(lambda x, r: (block(x, r) * r).sum(), argnums=(0, 1))(x, r)

        expected = gradients(block)
        assert_close(gradients(mx.checkpoint(mlx_norms.fuse(block))), expected)
        assert_close(gradients(mlx_norms.fuse(mx.checkpoint(block))), expected)

    @each_norm
    def test_twice(self, norm):
        block = block_of(norm)
        got = mlx_norms.fuse(mlx_norms.fuse(block))(x, r)
        assert nodes(got) == (2, 0)
        assert_close(got, block(x, r))


class TestWithAPatch:
    """The function's own way to fuse holds inside of it."""

    @each_norm
    def test_within_a_block(self, norm):
        h = x + r
        with mlx_norms.patched():
            got = mlx_norms.fuse(lambda: norm(h, *norm.parameters))()
        assert operations(h) == {"Add": 1}
        assert nodes(got) == (1, 0)

    def test_report(self):
        with mlx_norms.patched():
            mlx_norms.fuse(block_of(NORMS[0]))(x, r)
            report = mlx_norms.report()
        assert (report.calls, report.fused) == (2, 2)
        assert report.reasons == {GRAPH_PASS: 2}

    def test_deep(self):
        """Without a call per node on the stack."""

        def f(h):
            for _ in range(2000):
                h = h + r
                h = h + 0.001 * mx.fast.rms_norm(h, None, EPS)
            return h

        got = mlx_norms.fuse(f)(x)
        # A difference grows with each of the 2000 norms by its share of the sum, e**2 at most, and
        # each of the 4000 sums adds a rounding.
        assert_close(got, f(x), roundings=8 * 4000)
