"""Operands of fewer axes than x that an earlier command buffer is still writing."""

import mlx.core as mx
import pytest

import mlx_norms
from support.bits import assert_same_bits
from support.inputs import arguments, cotangents, normal
from support.norm_case import Norm

pytestmark = pytest.mark.usefixtures("backend")

SHAPE = (2, 3, 5, 64)
FORMS = [(64,), (2, 1, 1, 64), (2, 3, 1, 64), (3, 1, 64), (2, 1, 5, 64)]
CASES = {
    "scale": Norm("rms_norm"),
    "shift": Norm("layer_norm"),
    "factor": Norm("add_rms_norm"),
}


@pytest.mark.parametrize("operand", CASES)
def test_operand_that_is_not_evaluated(operand):
    """Its writer is a launch of ours, which the simulated device sees."""
    norm = CASES[operand]
    for form in FORMS:
        before = normal(form, mx.float32, seed=form)
        arrays = arguments(norm, SHAPE, mx.float32) | {operand: mlx_norms.rms_norm(before)}
        of_outputs = cotangents(norm, arrays)
        mx.eval(arrays, before, of_outputs)
        expected = norm.vjp(arrays, of_outputs)
        mx.eval(expected)
        got = norm.vjp(arrays | {operand: mlx_norms.rms_norm(before)}, of_outputs)
        for a, b in zip(sum(got, []), sum(expected, []), strict=True):
            assert_same_bits(a, b, note=f"{operand} of {form}")


def test_gate_of_all_of_a_batch():
    norm = Norm("rms_norm", activation="silu")
    arrays = arguments(norm, SHAPE, mx.float32)
    before = normal(SHAPE[1:], mx.float32, seed=1)
    gate = mlx_norms.rms_norm(before)
    mx.eval(arrays, before, gate)
    mapped = mx.vmap(lambda x, gate: norm({**arrays, "x": x, "gate": gate})[0], in_axes=(0, None))
    expected = mapped(arrays["x"], gate)
    mx.eval(expected)
    assert_same_bits(mapped(arrays["x"], mlx_norms.rms_norm(before)), expected)
