"""Peak memory shows that inputs are not copied, and that dead ones become the outputs."""

import mlx.core as mx
import pytest

from support.checks import check_gradients, check_outputs
from support.inputs import SLOW, arguments, cotangents
from support.memory import peak_bytes
from support.norm_case import OPS, Norm

pytestmark = pytest.mark.usefixtures("backend")

SHAPE = (512, 1024 if SLOW else 4096)
BYTES = 4 * SHAPE[0] * SHAPE[1]


def peak(make):
    """Most memory that evaluating what ``make`` builds needs at once, in arrays of SHAPE."""
    return peak_bytes(make) / BYTES


def inputs(norm, dtype=mx.float32):
    """The arguments of a norm and, apart, weight and bias alone."""
    arrays = arguments(norm, SHAPE, dtype)
    mx.eval(arrays)
    return arrays, {n: a for n, a in arrays.items() if n in ("weight", "bias")}


def temporaries(norm, arrays):
    """Arrays of rows for the norm that nobody else holds."""
    return [arrays[n] * 2 for n in norm.arguments[: 1 + norm.adds]]


@pytest.mark.parametrize("op", ["rms_norm", "layer_norm"])
def test_chain_runs_in_the_memory_of_its_first_array(op):
    norm = Norm(op)
    arrays, parameters = inputs(norm)

    def chain():
        (x,) = temporaries(norm, arrays)
        for _ in range(8):
            (x,) = norm({"x": x} | parameters)
        return x

    assert peak(chain) < 1.25


# Of two outputs MLX keeps one from being donated until the task that wrote it has run, so a chain
# is evaluated step by step, and a graph has one step.
@pytest.mark.parametrize("op", ["add_rms_norm", "add_layer_norm"])
def test_steps_run_in_the_memory_of_their_first_arrays(op):
    norm = Norm(op)
    arrays, parameters = inputs(norm)
    state = temporaries(norm, arrays)
    mx.eval(state)
    mx.synchronize()
    mx.reset_peak_memory()
    before = mx.get_active_memory() / BYTES
    for _ in range(8):
        state = norm({"x": state[0], "residual": state[1]} | parameters)
        mx.eval(state)
        mx.synchronize()
    assert mx.get_peak_memory() / BYTES < before + 0.25


@pytest.mark.parametrize(
    "used", [slice(0, 1), slice(1, 2), slice(0, 2)], ids=["norm", "sum", "both"]
)
@pytest.mark.parametrize("dead", [("x",), ("residual",), ("x", "residual")], ids="-".join)
@pytest.mark.parametrize("op", ["add_rms_norm", "add_layer_norm"])
def test_two_outputs_take_the_dead_inputs(op, dead, used):
    norm = Norm(op)
    arrays, _ = inputs(norm)
    assert peak(lambda: norm(arrays | {n: arrays[n] * 2 for n in dead})[used]) < 2.25


# In registers, and longer: such a row is read several times, and last just before it is written. On
# the simulated device no element is read as an input's that was written as an output's.
@pytest.mark.parametrize("length", [96, 65536])
@pytest.mark.parametrize("op", OPS)
def test_values_in_the_memory_of_dead_inputs(op, length):
    norm = Norm(op)
    arrays = arguments(norm, (3, length), mx.float32)
    rows = norm.arguments[: 1 + norm.adds]
    for dead in dict.fromkeys((rows, rows[:1], rows[-1:])):
        outputs = norm(arrays | {n: arrays[n] * 1 for n in dead})
        check_outputs(norm, arrays, outputs, str(dead))
    cots = cotangents(norm, arrays)
    _, gradients = norm.vjp(arrays, [c * 1 for c in cots])
    check_gradients(norm, arrays, cots, gradients)


@pytest.mark.parametrize("op", OPS)
def test_held_input_costs_its_outputs_only(op):
    norm = Norm(op)
    arrays, _ = inputs(norm)
    assert peak(lambda: norm(arrays)) < 1 + norm.adds + 0.25


@pytest.mark.parametrize(
    "view",
    [
        lambda a: mx.concatenate([a, a], axis=1)[:, 7 : SHAPE[1] + 7],
        lambda a: mx.concatenate([a, a], axis=0)[::2],
        lambda a: mx.contiguous(a.reshape(8, 64, -1).transpose(1, 0, 2)).transpose(1, 0, 2),
        lambda a: mx.broadcast_to(a[:1] * 1, SHAPE),
    ],
    ids=["columns", "every second row", "transposed rows", "broadcast row"],
)
@pytest.mark.parametrize("op", OPS)
def test_strided_rows_are_not_copied(op, view):
    norm = Norm(op)
    arrays, _ = inputs(norm)
    given = view(arrays["x"])
    arrays |= {n: given for n in norm.arguments[: 1 + norm.adds]}
    mx.eval(given)
    assert peak(lambda: norm(arrays)) < 1 + norm.adds + 0.25


@pytest.mark.parametrize("op", OPS)
def test_backward_needs_no_array_of_rows_beside_its_gradient(op):
    norm = Norm(op)
    arrays, _ = inputs(norm)
    outputs = norm(arrays)
    cots = [o * 2 for o in outputs]
    mx.eval(outputs, cots)

    def make():
        _, grads = norm.vjp(arrays, cots)
        return grads

    # Forward outputs where there is a sum (the backward starts from it), and one gradient; besides,
    # partial sums of the weight's and the bias's, of 128 of the 512 rows each on a large GPU.
    assert peak(make) < 1 + 2 * norm.adds + 0.75


@pytest.mark.parametrize("op", OPS)
def test_nothing_is_kept(op):
    norm = Norm(op)
    arrays, _ = inputs(norm)
    mx.synchronize()
    before = mx.get_active_memory()
    for _ in range(3):
        mx.eval(norm(arrays))
    mx.synchronize()
    assert mx.get_active_memory() == before
