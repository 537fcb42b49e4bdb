"""Fused sums and norms hold each other: they must go when nobody else holds them."""

import threading

import mlx.core as mx
import pytest

import mlx_norms
from support.inputs import normal
from support.patched_runs import ALONE, DIMS, FUSED, NORMS, ROWS

pytestmark = [
    pytest.mark.usefixtures("backend"),
    pytest.mark.parametrize("norm", NORMS, ids=lambda norm: norm.name),
]

TIMES = 20


def fresh():
    """An array with memory of its own."""
    a = mx.full((ROWS, DIMS), 1.5) + mx.arange(DIMS)
    mx.eval(a)
    return a


def pair(norm, x, r):
    h = x + r
    return h, norm(h, *norm.parameters)


def dropped(norm):
    pair(norm, fresh(), fresh())


def sum_evaluated(norm):
    h, _ = pair(norm, fresh(), fresh())
    mx.eval(h)


def norm_evaluated(norm):
    _, n = pair(norm, fresh(), fresh())
    mx.eval(n)


def one_after_the_other(norm):
    h, n = pair(norm, fresh(), fresh())
    mx.eval(n)
    mx.eval(h)


def used_and_dropped(norm):
    h, n = pair(norm, fresh(), fresh())
    mx.eval((h + n).sum())


def in_grad(norm):
    def f(x, r):
        h, n = pair(norm, x, r)
        return (h * n).sum()

    mx.eval(mx.grad(f, argnums=(0, 1))(fresh(), fresh()))


def evaluated_in_grad(norm):
    def f(x, r):
        h, n = pair(norm, x, r)
        mx.eval(h)
        return (h * n).sum()

    mx.eval(mx.grad(f)(fresh(), fresh()))


def in_vmap(norm):
    mx.eval(mx.vmap(lambda x, r: pair(norm, x, r))(fresh(), fresh()))


def in_compile(norm):
    captured = fresh()
    mx.eval(mx.compile(lambda x: pair(norm, x, captured))(fresh()))


def in_checkpoint(norm):
    def f(x, r):
        h, n = pair(norm, x, r)
        return (h * n).sum()

    mx.eval(mx.grad(mx.checkpoint(f))(fresh(), fresh()))


def in_a_function_that_raises(norm):
    def f(x):
        pair(norm, x, x)
        raise KeyError

    with pytest.raises(KeyError):
        mx.grad(f)(fresh())


FUSES = [norm_evaluated, one_after_the_other, used_and_dropped, in_grad, in_vmap, in_compile]
FUSES += [in_checkpoint]
# Without a pass, or none that reaches the norm.
UNFUSED = [dropped, sum_evaluated, evaluated_in_grad, in_a_function_that_raises]


def active_memory():
    mx.synchronize()
    return mx.get_active_memory()


@pytest.mark.parametrize("use", FUSES + UNFUSED, ids=lambda use: use.__name__)
def test_nothing_is_left(norm, use):
    """A descriptor that is leaked holds the operands of its sum."""
    with mlx_norms.patched():
        use(norm)
        before = active_memory()
        for _ in range(TIMES):
            use(norm)
        assert (mlx_norms.report().fused > TIMES) == (use in FUSES)
        assert active_memory() == before


def test_deep_graph_is_dropped(norm):
    """Without a call per node on the stack, of which the thread's holds few."""
    blocks = 4000
    left = []

    def build_and_drop():
        before = active_memory()
        x, r = fresh(), fresh()
        parameters = norm.parameters
        h = x
        for _ in range(blocks):
            h = h + r
            h = h + mx.tanh(norm(h, *parameters))
        del x, r, h, parameters
        left.append(active_memory() - before)

    size = threading.stack_size(1024 * 1024)
    mlx_norms.patch()
    fresh()  # a process's first pass makes a number that stays
    try:
        thread = threading.Thread(target=build_and_drop)
        thread.start()
        thread.join()
        assert mlx_norms.report().reasons == {ALONE: blocks}
    finally:
        mlx_norms.unpatch()
        threading.stack_size(size)
    assert left == [0]


def peak_memories(f):
    """Of a few runs, in order: some memory is given back late, by a stream's thread."""
    peaks = []
    for _ in range(9):
        mx.synchronize()
        before = mx.get_active_memory()
        mx.reset_peak_memory()
        f()
        peaks.append(mx.get_peak_memory() - before)
    return sorted(peaks)


def test_peak_is_not_higher(norm):
    """Sums go where an operand was that nobody holds.

    Each block is evaluated: MLX's CPU streams run ahead by a number of operations, and a fused one
    counts as one, so in a long graph the memory in flight is another measure.
    """
    x, r = (normal((16, 1024), mx.float32, seed=seed) for seed in "xr")
    parameters = [mx.ones((1024,)), mx.zeros((1024,))][: len(norm.parameters)]
    mx.eval(x, r, parameters)

    def chain():
        h = mx.exp(x)
        for _ in range(4):
            h = h + r
            h = h + mx.tanh(norm(h, *parameters))
            mx.eval(h)
            mx.synchronize()  # a stream's thread gives back what is not of the next block

    stock = peak_memories(chain)
    with mlx_norms.patched():
        patched = peak_memories(chain)
        assert mlx_norms.report().reasons == {FUSED: 4 * 9}
    # The norm, and the sum where its operand was.
    assert patched[0] < 2.5 * x.nbytes
    assert patched[len(patched) // 2] <= stock[-1]
