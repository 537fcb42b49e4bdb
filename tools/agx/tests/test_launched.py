"""What launch plans make of calls, on the software Metal device."""

import pytest

import join
from agx.launched import launched
from hostmetal.build import MissingCompiler, compiler

pytestmark = [pytest.mark.instrument, pytest.mark.build]


def test_specializations_are_those_of_launch_plans():
    try:
        compiler()
    except MissingCompiler as error:
        pytest.skip(f"instrument missing: {error}")
    by_call = {}
    for of, calls in launched(join.texts(), small=True).items():
        for call in calls:
            by_call.setdefault(call, []).append(of)
    (norm,) = by_call["rms_norm float32 4096"]
    assert (norm.library, norm.kernel) == ("norm", "norm_4_2_512")
    constants = dict(norm.constants)
    assert constants["has_weight"] and constants["whole"] and "has_bias" not in constants
    assert norm.group == (32 * constants["simds_per_row"], 1, 1)
    kernels = {of.kernel for of in by_call["rms_norm float32 16384 backward"]}
    assert {"norm_vjp_4_4_512", "parameter_gradients_4"} <= kernels
