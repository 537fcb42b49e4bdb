"""Which sums are fused into the norms that take them, and that all who hold a sum see the same."""

import itertools
import threading

import mlx.core as mx
import pytest

from support.bits import assert_same_bits
from support.inputs import normal
from support.norm_case import DTYPES, short
from support.patched_runs import (
    ALONE,
    DIMS,
    FUSED,
    LONG_GRAPH,
    NORMS,
    OF_SUM,
    OTHER_STREAM,
    REPEATED,
    ROUNDINGS,
    ROUNDOFF,
    ROWS,
    WITH_OTHERS,
    assert_close,
    check,
    largest,
    operations,
    run_patched,
)

pytestmark = [
    pytest.mark.usefixtures("backend"),
    pytest.mark.parametrize("norm", NORMS, ids=lambda norm: norm.name),
]

SHAPE = (ROWS, DIMS)
NODES = {"rms_norm": "mlx_norms::AddRMSNorm", "layer_norm": "mlx_norms::AddLayerNorm"}
# Of a norm that is rounded to 16 bits before the weight, after it, after the bias and at the end.
ROUNDINGS_16 = 4


@pytest.fixture(scope="module", autouse=True)
def arrays(backend):
    """x, r and a row, made on the device under test."""
    global x, r, row
    x, r = (normal(SHAPE, mx.float32, seed=seed) for seed in ("x", "r"))
    row = normal((DIMS,), mx.float32, seed="row")
    mx.eval(x, r, row)


def of(norm, h):
    """The sum, its norm, and something made of both."""
    n = norm(h, *norm.parameters)
    return h, n, mx.tanh(h) + n


class TestOperands:
    def test_two_arrays(self, norm):
        check(lambda: of(norm, x + r), {FUSED: 1})

    def test_it_is_one_node(self, norm):
        """Both the sum and its norm come from it, however they are reached, once both have been
        in one graph."""

        def f():
            h = x + r
            n = norm(h, *norm.parameters)
            assert operations(h) == {"Add": 1}
            assert operations(n) == operations(h) == operations(h, n) == {NODES[norm.name]: 1}
            return h, n

        run_patched(f)

    def test_without_fusion(self, norm):
        results, report = run_patched(lambda: of(norm, x + r), fuse=False)
        assert_close(results, of(norm, x + r))
        assert report.reasons == {ALONE: 1}

    def test_an_array_twice(self, norm):
        check(lambda: of(norm, x + x), {FUSED: 1})

        def loss(x):
            return sum(a.sum() for a in of(norm, x + x))

        check(lambda: mx.grad(loss)(x), {FUSED: 1})

    def test_sum_of_a_sum(self, norm):
        check(lambda: of(norm, (x + r) + x), {FUSED: 1})

    def test_scaled_residual(self, norm):
        check(lambda: of(norm, x + 0.25 * r), {FUSED: 1})

    def test_difference(self, norm):
        check(lambda: of(norm, x - r), {ALONE: 1})

    def test_norm_among_the_operands(self, norm):
        """The branch is normalized before it is added, and the sum after: of RMS norms, all are one
        node."""
        reasons = {"rms_norm": {WITH_OTHERS: 2}, "layer_norm": {ALONE: 1, FUSED: 1}}
        check(lambda: of(norm, x + norm(r, *norm.parameters)), reasons[norm.name])

    def test_norm_among_the_operands_that_is_held(self, norm):
        def f():
            branch = norm(r, *norm.parameters)
            return branch, of(norm, x + branch)

        check(f, {ALONE: 1, FUSED: 1})

    def test_row_for_all_rows(self, norm):
        check(lambda: of(norm, x + row), {FUSED: 1})
        whole = mx.broadcast_to(row, SHAPE)
        mx.eval(whole)
        check(lambda: of(norm, whole + x), {FUSED: 1})

    @pytest.mark.parametrize("shape", [(), (1,), (1, 1), (ROWS, 1)], ids=str)
    def test_one_element_for_a_row(self, norm, shape):
        element = normal(shape, mx.float32, seed="element")
        check(lambda: of(norm, x + element), {REPEATED: 1})
        check(lambda: of(norm, element + x), {REPEATED: 1})
        whole = mx.broadcast_to(element, SHAPE)
        mx.eval(whole)
        check(lambda: of(norm, x + whole), {REPEATED: 1})

    def test_python_number(self, norm):
        check(lambda: of(norm, x + 1.5), {REPEATED: 1})

    def test_column_and_row(self, norm):
        check(lambda: of(norm, x[:, :1] + row), {REPEATED: 1})

    def test_shapes(self, norm):
        for shape in ((DIMS,), (1, DIMS), (2, 3, DIMS), (1, 2, 1, 3, DIMS)):
            a, b = (normal(shape, mx.float32, seed=seed) for seed in "ab")
            check(lambda a=a, b=b: of(norm, a + b), {FUSED: 1})

    def test_rows_of_one_element(self, norm):
        a, b = (normal((ROWS, 1), mx.float32, seed=seed) for seed in "ab")

        def f():
            h = a + b
            return h, norm(h, *(p[:1] for p in norm.parameters))

        check(f, {FUSED: 1})

    # mx.fast itself fails on empty arrays with CUDA.
    @pytest.mark.backends("cpu", "metal", "metal-sim")
    @pytest.mark.parametrize("shape", [(0, DIMS), (2, 0, DIMS), (ROWS, 0)], ids=str)
    def test_nothing(self, norm, shape):
        def f():
            h = mx.zeros(shape) + mx.zeros(shape)
            return h, norm(h, *(p[: shape[-1]] for p in norm.parameters))

        check(f, {FUSED: 1})

    def test_layouts(self, norm):
        wide = normal((DIMS, 2 * ROWS), mx.float32, seed="wide")
        for a in (wide[:, ::2].T, wide.T[1::2], wide.T[::-2]):
            check(lambda a=a: of(norm, a + r), {FUSED: 1})
            check(lambda a=a: of(norm, a + a), {FUSED: 1})

    def test_dtypes(self, norm):
        """The results' dtypes are mx.fast's."""
        for dtypes in itertools.product(DTYPES, repeat=2 + len(norm.parameters)):
            a, b = x.astype(dtypes[0]), r.astype(dtypes[1])
            parameters = [p.astype(d) for p, d in zip(norm.parameters, dtypes[2:], strict=True)]

            def f(a=a, b=b, parameters=parameters):
                h = a + b
                return h, norm(h, *parameters)

            (h, n), report = run_patched(f)
            stock_h, stock_n = f()
            note = f"{norm.name}: {', '.join(map(short, dtypes))}"
            assert report.reasons == {FUSED: 1}, note
            assert_same_bits(h, stock_h, note)
            assert n.dtype == stock_n.dtype, note
            narrow = max(ROUNDOFF[d] for d in dtypes)
            bound = narrow * (ROUNDINGS if narrow == ROUNDOFF[mx.float32] else ROUNDINGS_16)
            assert largest(n - stock_n) <= bound * largest(stock_n), note

    def test_float16_sums_that_overflow(self, norm):
        """A patched sum is inf where a sum is."""
        a = mx.full(SHAPE, 60000.0, mx.float16)
        (h, *_), report = run_patched(lambda: of(norm, a + a))
        assert report.reasons == {FUSED: 1}
        assert mx.all(mx.isinf(h)).item()


class TestParameters:
    def test_none(self, norm):
        def f():
            h = x + r
            return h, norm(h)

        check(f, {FUSED: 1})

    def test_bias_alone(self, norm):
        def f():
            h = x + r
            return h, mx.fast.layer_norm(h, None, row, 1e-5)

        check(f, {FUSED: 1})

    def test_pending(self, norm):
        def f():
            h = x + r
            return h, norm(h, *(2 * p for p in norm.parameters))

        check(f, {FUSED: 1})

    @pytest.mark.parametrize("length, reason", [(255, FUSED), (256, LONG_GRAPH)])
    def test_pending_by_many_operations(self, norm, length, reason):
        """256 arrays are looked at, one of which is where a chain of 255 begins."""

        def f():
            h = x + r
            parameters = norm.parameters
            for _ in range(length):
                parameters[-1] = mx.abs(parameters[-1])
            return h, norm(h, *parameters)

        check(f, {reason: 1})

    def test_computed_by_many_operations(self, norm):
        def f():
            h = x + r
            parameters = norm.parameters
            for _ in range(12):
                parameters[-1] = mx.abs(parameters[-1])
            mx.eval(parameters)
            return h, norm(h, *parameters)

        check(f, {FUSED: 1})

    def test_of_the_operands(self, norm):
        def f():
            a = mx.tanh(x)
            h = a + r
            return h, norm(h, *(a[i] for i in range(len(norm.parameters))))

        check(f, {FUSED: 1})

    def test_of_the_sum(self, norm):
        """The weight waits for the sum, which would wait for the weight."""

        def f():
            h = x + r
            return h, norm(h, *(mx.tanh(h[i]) for i in range(len(norm.parameters))))

        check(f, {OF_SUM: 1})

    def test_the_sum_itself(self, norm):
        def f():
            h = x[0] + r[0]
            return h, norm(h, h, h)

        check(f, {OF_SUM: 1})

    def test_only_the_last_of_the_sum(self, norm):
        def f():
            h = x + r
            return h, norm(h, *norm.parameters[:-1], h.sum(axis=0))

        check(f, {OF_SUM: 1})

    @pytest.mark.parametrize("length, reason", [(12, OF_SUM), (256, LONG_GRAPH)])
    def test_of_the_sum_by_many_operations(self, norm, length, reason):
        def f():
            h = x + r
            w = h[0]
            for _ in range(length):
                w = mx.tanh(w)
            return h, norm(h, *norm.parameters[:-1], w)

        check(f, {reason: 1})

    def test_of_the_sum_added_to_a_number(self, norm):
        """What would become a weight offset is computed from the sum, or is the sum."""

        def f():
            h = x + r
            w = 1 + h[0]
            s = 1 + row
            return h, mx.fast.rms_norm(h, w, 1e-5), mx.fast.rms_norm(s, s, 1e-5)

        check(f, {OF_SUM: 1, REPEATED: 1})

    def test_of_a_norm_that_has_fused(self, norm):
        """The weight waits for another sum only."""

        def f():
            g = x + x
            w = norm(g, *norm.parameters)[0]
            h = g + r
            return g, h, norm(h, *norm.parameters[:-1], w)

        check(f, {FUSED: 2})


class TestHolders:
    """All who hold the sum, before the norm and after it."""

    def test_second_norm(self, norm):
        def f():
            h = x + r
            first = norm(h, *norm.parameters)
            return h, first, norm(h, *(2 * p for p in norm.parameters))

        check(f, {FUSED: 1, ALONE: 1})

    def test_both_norms(self, norm, backend):
        def f():
            h = x + r
            return h, [each(h, *each.parameters) for each in (norm, *NORMS)]

        joins = backend != "cpu" and not norm.layer  # two rms norms, in one launch
        check(f, {FUSED: 1, WITH_OTHERS if joins else ALONE: 2})

    @pytest.mark.parametrize("order", list(itertools.permutations(range(3))), ids=str)
    def test_evaluated_in_any_order(self, norm, order):
        """The sum is part of its norm, unless it is evaluated by itself before."""

        def f():
            outputs = of(norm, x + r)
            for i in order:
                mx.eval(outputs[i])
            return outputs

        check(f, {ALONE if order[0] == 0 else FUSED: 1})

    def test_evaluated_before(self, norm):
        def f():
            h = x + r
            mx.eval(h)
            return of(norm, h)

        check(f, {ALONE: 1})

    def test_being_evaluated(self, norm):
        def f():
            h = x + r
            mx.async_eval(h)
            return of(norm, h)

        check(f, {ALONE: 1})

    @pytest.mark.parametrize("kept, reason", [("sum", ALONE), ("norm", FUSED)])
    def test_the_other_is_dropped(self, norm, kept, reason):
        """A norm that nobody takes is not in the graph."""

        def f():
            h = x + r
            n = norm(h, *norm.parameters)
            if kept == "sum":
                del n
                return h
            del h
            return n

        check(f, {reason: 1})

    def test_norm_of_a_sum_that_nobody_holds(self, norm):
        check(lambda: norm(mx.exp(x) + mx.exp(r), *norm.parameters), {FUSED: 1})

    def test_operands_keep_their_values(self, norm):
        a, b = mx.array(x), mx.array(r)
        mx.eval(a, b)
        check(lambda: of(norm, a + b), {FUSED: 1})
        assert mx.array_equal(a, x)
        assert mx.array_equal(b, r)

    def test_made_before(self, norm):
        def f():
            h = x + r
            made = [h * 2, h[1:], h.T, h.reshape(2, -1), h.astype(mx.float16), [h][0]]
            return of(norm, h), made

        check(f, {FUSED: 1})

    def test_made_after(self, norm):
        def f():
            h = x + r
            n = norm(h, *norm.parameters)
            return [[a * 2, a[1:], a.T, a.reshape(2, -1), a.astype(mx.float16)] for a in (h, n)]

        check(f, {FUSED: 1})

    def test_another_handle(self, norm):
        """Some operations that have nothing to do return their argument."""

        def f():
            h = x + r
            other = h.reshape(h.shape)
            assert other is not h
            return of(norm, other), h, h.astype(h.dtype)

        check(f, {FUSED: 1})

    def test_norm_of_a_view(self, norm, backend):
        def f():
            h = x + r
            return h, [norm(view, *norm.parameters) for view in (h[1:], h.reshape(2, 2, DIMS))]

        joins = backend != "cpu" and not norm.layer
        check(f, {WITH_OTHERS if joins else ALONE: 2})

    def test_sum_is_read_by_the_same_expression(self, norm):
        """Operands that are used again, as in the next residual."""

        def f():
            a = mx.tanh(x)
            h = a + r
            n = norm(h, *norm.parameters)
            return a * n + h * r, a

        check(f, {FUSED: 1})

    def test_chain(self, norm):
        def f():
            h, seen = x, []
            for _ in range(6):
                h = h + r
                n = norm(h, *norm.parameters)
                seen.append(n)
                h = h + mx.tanh(n)
                seen.append(norm(h, *norm.parameters))
            return h, seen

        check(f, {FUSED: 12})


class TestInPlace:
    def test_number_added(self, norm):
        def f():
            h = x + r
            h += 1.0
            return of(norm, h)

        check(f, {REPEATED: 1})

    def test_array_added(self, norm):
        def f():
            h = x + r
            h += x
            return of(norm, h)

        check(f, {FUSED: 1})

    def test_array_added_afterwards(self, norm):
        def f():
            h = x + r
            before = h
            n = norm(h, *norm.parameters)
            h += x
            return before, h, n, norm(h, *norm.parameters)

        check(f, {FUSED: 2})

    def test_element_set_before(self, norm):
        def f():
            h = x + r
            h[0] = 0
            return of(norm, h)

        check(f, {ALONE: 1})

    def test_element_set_afterwards(self, norm):
        def f():
            h = x + r
            n = norm(h, *norm.parameters)
            h[0] = 7
            return h, n

        check(f, {FUSED: 1})


class TestStreams:
    """Streams of the default device, and a norm that joins one only with what is on it."""

    @pytest.fixture
    def other(self):
        return mx.new_stream(mx.default_device())

    def test_sum_on_another(self, norm, other):
        def f():
            h = mx.add(x, r, stream=other)
            return of(norm, h)

        check(f, {OTHER_STREAM: 1})

    def test_norm_on_another(self, norm, other):
        def f():
            h = x + r
            return h, norm(h, *norm.parameters, stream=other)

        check(f, {OTHER_STREAM: 1})

    def test_both_on_another(self, norm, other):
        def f():
            h = mx.add(x, r, stream=other)
            return h, norm(h, *norm.parameters, stream=other)

        check(f, {FUSED: 1})

    def test_both_in_the_context_of_another(self, norm, other):
        def f():
            with mx.stream(other):
                return of(norm, x + r)

        check(f, {FUSED: 1})

    def test_used_on_another(self, norm, other):
        def f():
            h = x + r
            n = norm(h, *norm.parameters)
            return mx.add(h, n, stream=other), h + n

        check(f, {FUSED: 1})

    def test_operands_of_another(self, norm, other):
        def f():
            return of(norm, mx.tanh(x, stream=other) + r)

        check(f, {FUSED: 1})

    def test_sum_of_another_thread(self, norm):
        """Which has a stream of its own, and takes evaluated arrays only."""
        sums = []

        def f():
            thread = threading.Thread(target=lambda: sums.append(x + r))
            thread.start()
            thread.join()
            operations(norm(sums.pop(), *norm.parameters))  # a pass, but no evaluation
            return of(norm, x + r)

        check(f, {OTHER_STREAM: 1, FUSED: 1})
