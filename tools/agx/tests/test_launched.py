"""What launch plans make of calls, on the software Metal device."""

import pytest

import join
from agx import plans, stored
from agx.launched import launched, names_by_index
from hostmetal.build import MissingCompiler, compiler

pytestmark = [pytest.mark.instrument, pytest.mark.build]


@pytest.fixture(scope="module")
def texts():
    return join.texts()


@pytest.fixture(scope="module")
def calls(texts):
    try:
        compiler()
    except MissingCompiler as error:
        pytest.skip(f"instrument missing: {error}")
    return launched(texts)


def test_specializations_are_those_of_launch_plans(calls):
    by_call = {}
    for of, names in calls.items():
        for name in names:
            by_call.setdefault(name, []).append(of)
    (norm,) = by_call["rms_norm float32 4096"]
    assert (norm.library, norm.kernel) == ("norm", "norm_4_2_512")
    constants = dict(norm.constants)
    assert constants["has_weight"] and constants["whole"] and "has_bias" not in constants
    assert norm.group == (32 * constants["simds_per_row"], 1, 1)
    kernels = {of.kernel for of in by_call["rms_norm float32 16384 backward"]}
    assert {"norm_vjp_4_4_512", "parameter_gradients_4"} <= kernels


def test_figures_are_stored_of_just_what_is_launched(calls, texts):
    table = stored.read(plans.STORED.read_text())
    constants = {name: names_by_index(text, name).values() for name, text in texts.items()}
    assert stored.missing(table, calls) == []
    assert stored.stale(table, calls, constants) == []
