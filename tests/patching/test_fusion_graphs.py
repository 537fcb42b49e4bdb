"""Random residual graphs: patched they compute what they did, and fuse what can be."""

from dataclasses import dataclass

import mlx.core as mx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from support.bits import assert_same_bits
from support.inputs import normal
from support.patched_runs import (
    ALONE,
    DIMS,
    FUSED,
    NORMS,
    OF_SUM,
    WITH_OTHERS,
    arrays_of,
    assert_close,
    largest,
    run_patched,
)

pytestmark = pytest.mark.usefixtures("backend")

ROWS = 3
STEPS = ("add", "rms_norm", "layer_norm", "tanh", "matmul", "tail")
NORM = {norm.name: norm for norm in NORMS}


@dataclass(frozen=True)
class Graph:
    """Steps that each append a value to x and r, and which values are returned.

    A step is an operation with the places of one or two values that it takes.
    """

    steps: tuple[tuple[str, int, int], ...]
    outputs: tuple[int, ...]

    def __call__(self, x, r, matrix, *parameters):
        values = [x, r]
        for step, i, j in self.steps:
            a, b = values[i], values[j]
            if step == "add":
                values.append(a + b)
            elif step == "tanh":
                values.append(mx.tanh(a))
            elif step == "matmul":
                values.append(a @ matrix)
            elif step == "tail":  # a view of all but one row, put under another value's
                values.append(mx.concatenate([a[:1], b[1:]]))
            else:
                norm = NORM[step]
                values.append(norm(a, *parameters[: 1 + norm.layer]))
        return [values[i] for i in self.outputs]

    def is_counted(self, reasons):
        """Whether each norm is counted once, and no more are fused with sums than can be."""
        sums = {i for i, (step, _, _) in enumerate(self.steps, 2) if step == "add"}
        taken = [i for step, i, _ in self.steps if step in NORM]
        is_known = reasons.keys() <= {FUSED, WITH_OTHERS, OF_SUM, ALONE}
        fused = reasons.get(FUSED, 0)
        return is_known and sum(reasons.values()) == len(taken) and fused <= len(sums & {*taken})

    def loss(self, *arrays):
        return sum((a * (i + 1)).sum() for i, a in enumerate(self(*arrays)))


@st.composite
def graphs(draw):
    steps = []
    for n in range(2, 2 + draw(st.integers(1, 9))):
        # Later values are more likely, or most of the graph would lead nowhere.
        place = st.integers(0, n - 1) | st.integers(max(0, n - 3), n - 1)
        steps.append((draw(st.sampled_from(STEPS)), draw(place), draw(place)))
    outputs = draw(st.lists(st.integers(2, n), min_size=1, max_size=3))
    return Graph(tuple(steps), (*outputs, n))


@pytest.fixture(scope="module")
def arguments(backend):
    """x, r, a matrix, a weight and a bias."""
    matrix = normal((DIMS, DIMS), mx.float32, seed="matrix", std=0.2)
    operands = [normal((ROWS, DIMS), mx.float32, seed=seed) for seed in ("x", "r")]
    return [*operands, matrix, *NORM["layer_norm"].parameters]


def truth(f, arguments):
    """f in float64, which mx.fast computes on the CPU."""
    with mx.stream(mx.cpu):
        results = f(*(a.astype(mx.float64) for a in arguments))
        results = [a.astype(mx.float32) for a in arrays_of(results)]
        mx.eval(results)
    return results


def assert_as_good(got, stock, true):
    """Whether patched results are as near to the truth as mx.fast's, within a factor.

    A random graph may amplify errors by any factor, which it does to both. Gradients that cancel
    are off by roundings of their terms, of which the largest gradient of all gives the scale.
    """
    __tracebackhide__ = True
    scale = max(largest(a) for a in true)
    for i, (a, b, t) in enumerate(zip(arrays_of(got), arrays_of(stock), true, strict=True)):
        bound = 16 * largest(b - t) + 512 * 2.0**-24 * scale
        assert largest(a - t) <= bound, f"output {i} is off by {largest(a - t):.3g} of {scale:.3g}"


@pytest.mark.slow
@given(graph=graphs())
def test_forward(arguments, graph):
    results, report = run_patched(lambda: graph(*arguments))
    assert graph.is_counted(report.reasons)
    assert_as_good(results, graph(*arguments), truth(graph, arguments))
    # A fused node has the bits of its two steps.
    unfused, _ = run_patched(lambda: graph(*arguments), fuse=False)
    for a, b in zip(results, unfused, strict=True):
        assert_same_bits(a, b, str(graph))


@pytest.mark.slow
@given(graph=graphs())
def test_gradients(arguments, graph):
    f = mx.value_and_grad(graph.loss, argnums=range(len(arguments)))
    results, report = run_patched(lambda: f(*arguments))
    assert graph.is_counted(report.reasons)
    assert_as_good(results, f(*arguments), truth(f, arguments))


# Each new elementwise kernel is compiled by a C++ compiler where MLX runs on the CPU.
@settings(max_examples=20)
@given(graph=graphs())
def test_compiled(arguments, graph):
    x, r, *constants = arguments
    compiled = mx.compile(lambda x, r: graph(x, r, *constants))
    results, report = run_patched(lambda: [compiled(x, r), compiled(x, r)])
    assert graph.is_counted(report.reasons)
    eager, _ = run_patched(lambda: graph(*arguments))
    for got in results:
        assert_close(got, eager)
