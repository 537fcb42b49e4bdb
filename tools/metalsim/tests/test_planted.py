"""Kernels with one planted fault each, which the simulator must name, and their repaired twins."""

import functools
import shutil

import numpy as np
import pytest

from metalsim import KINDS, Library, Memory, address_spaces
from planted.cases import CASES, FILES, marks

pytestmark = pytest.mark.instrument

MARKS = {path: marks(path) for path in FILES}
ORDERS = range(4)
# What costs a shadow of device memory is left to the highest level.
FULL_CHECKS_ONLY = {"device race", "uninitialized device", "aliased read", "unwritten output"}


@pytest.fixture(scope="module", params=["clang++", "g++"])
def cxx(request):
    path = address_spaces.compiler() if request.param == "clang++" else shutil.which("g++")
    if path is None:
        pytest.skip(f"instrument missing: {request.param}")
    return path


@functools.cache
def library(path, repaired, check, cxx):
    return Library(path, defines=["REPAIRED"] * repaired, check=check, cxx=cxx)


def launch(case, repaired, cxx, order, check=2):
    """Runs a case; returns the result and the arrays after the launch."""
    path = next(path for path in FILES if case.kernel in MARKS[path])
    arrays = {name: np.copy(value) for name, value in case.arrays.items()}
    arrays |= {name: arrays[of] for name, of in case.shared.items()}
    args = dict(arrays)
    for name in {*case.uninitialized, *case.shared, *case.shared.values()}:
        memory = arrays[name]
        initialized = name not in case.uninitialized
        args[name] = Memory(memory.ctypes.data, memory.nbytes, initialized=initialized)
    keywords = case.launch | (case.repaired if repaired else {})
    run = library(path, repaired, check, cxx).launch
    return run(case.kernel, args, order=order, **keywords), arrays


def expected(case):
    return next(found[case.kernel] for found in MARKS.values() if case.kernel in found)


def assert_reported(case, result):
    marked = {(mark.kind, mark.line, mark.buffer or "") for mark in expected(case)}
    found = {(f.kind, f.line, f.buffer) for f in result.faults}
    assert found & marked, result.faults
    # Where a read runs ahead of its write, it also meets memory that nothing has written yet.
    races = {(line, buffer) for kind, line, buffer in marked if kind == "threadgroup race"}
    early = {("uninitialized threadgroup", *place) for place in races}
    assert found <= marked | early, result.faults
    assert {f.kernel for f in result.faults} == {case.kernel}


def test_each_kernel_has_one_case():
    planted = [kernel for found in MARKS.values() for kernel in found]
    assert sorted(planted) == sorted(case.kernel for case in CASES)
    kinds = [{mark.kind for mark in expected(case)} for case in CASES]
    assert all(len(kind) == 1 for kind in kinds)
    assert set.union(*kinds) == {*KINDS} - {"out of memory"}


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.kernel)
def test_fault(case, order, cxx):
    result, _ = launch(case, False, cxx, order)
    assert_reported(case, result)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.kernel)
def test_twin(case, cxx):
    for order in ORDERS:
        result, arrays = launch(case, True, cxx, order)
        assert result.faults == []
        for name, value in case.expected.items():
            np.testing.assert_allclose(arrays[name], value, rtol=1e-6, err_msg=f"order {order}")


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.kernel)
def test_light_checks(case, cxx):
    """Level 1 reports the same, but for faults that take a shadow of device memory."""
    result, _ = launch(case, False, cxx, 0, check=1)
    if expected(case)[0].kind in FULL_CHECKS_ONLY:
        assert result.faults == []
    else:
        assert_reported(case, result)
    result, _ = launch(case, True, cxx, 0, check=1)
    assert result.faults == []
