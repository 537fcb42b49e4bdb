"""Peak memory shows that x is not copied, and that dead arrays become the results."""

import itertools

import mlx.core as mx
import pytest

import mlx_norms
from support.group_norm import GroupCase, parameters_of
from support.inputs import normal
from support.memory import peak_bytes

pytestmark = [pytest.mark.usefixtures("backend"), pytest.mark.backends("cpu")]

SHAPE = (3, 40, 64, 96)  # threads share each sample


def cases(x):
    p = parameters_of(SHAPE[-1], x.dtype)
    yield GroupCase("group_norm", x, **p, num_groups=8, activation="silu")
    yield GroupCase("group_norm", x, **p, num_groups=8, pytorch_compatible=True)
    yield GroupCase("batch_norm", x, **p, training=True)


def peak(make, x):
    return peak_bytes(make) / x.nbytes


@pytest.mark.parametrize("dtype", [mx.float32, mx.bfloat16])
def test_no_array_of_x_besides_the_results(dtype):
    x, g = (normal(SHAPE, dtype, seed=s) for s in "xg")
    mx.eval(x, g)
    for case in cases(x):
        assert peak(lambda: case(*case.arrays()), x) < 1.25, case
        assert peak(lambda: case(x * 2, *case.arrays()[1:]), x) < 1.25, case
        y = case(*case.arrays())
        mx.eval(y)
        gradients = lambda: mx.vjp(case, case.arrays(), [g])[1]  # noqa: E731
        # The forward's output is there, too.
        assert peak(gradients, x) < 2.25, case


def test_views_are_not_copied():
    whole = normal((3, 80, 64, 104), mx.float32, seed=1)
    first = mx.contiguous(normal(SHAPE, mx.float32, seed=2).transpose(0, 3, 1, 2))
    mx.eval(whole, first)
    for x in (
        whole[:, ::2, :, 5:101],
        mx.broadcast_to(whole[:1, :40, :, :96], SHAPE),
        first.transpose(0, 2, 3, 1),
    ):
        mx.eval(x)
        for case in cases(x):
            assert peak(lambda: case(*case.arrays()), x) < 1.25, case


# In float32 and 16 bits, in place and by copies of some rows.
def test_dead_arrays_become_the_results():
    for x_type, y_type in itertools.product((mx.float32, mx.float16, mx.bfloat16), repeat=2):
        x = normal(SHAPE, x_type, seed=3)
        out = lambda a: mlx_norms.group_norm(a, 8, dtype=y_type)  # noqa: E731
        held, dead = out(x), out(x * 1)
        assert mx.array_equal(held, dead), (x_type, y_type)
