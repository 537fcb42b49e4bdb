"""What is not about a machine is deselected, and only what lacks an instrument is skipped."""

import re
import subprocess
import sys

from support.variant import environment

TESTS = """
import pytest


@pytest.fixture(params=["any", pytest.param("gpu", marks=pytest.mark.gpu)])
def kernel(request):
    return request.param


def test_of_any_kernel(kernel):
    assert kernel == "any"


@pytest.mark.backends("cpu", "cuda")
@pytest.mark.applies(True)
def test_here(backend):
    pass


@pytest.mark.backends("cuda")
def test_on_cuda(backend):
    raise AssertionError


@pytest.mark.applies(False)
def test_elsewhere():
    raise AssertionError


def test_of_launches(launches):
    raise AssertionError


def test_without_a_hammer():
    pytest.skip("instrument missing: a hammer")


def test_on_another_day():
    pytest.skip("not today")
"""


def test_selection(tmp_path):
    (tmp_path / "test_it.py").write_text(TESTS)
    command = [sys.executable, "-m", "pytest", "-p", "conftest", "-p", "no:cacheprovider"]
    done = subprocess.run(
        [*command, "test_it.py"], cwd=tmp_path, env=environment(), capture_output=True, text=True
    )
    assert re.findall("^FAILED .*::(\\w+)", done.stdout, re.M) == ["test_on_another_day"]
    assert "1 failed, 2 passed, 1 skipped, 4 deselected" in done.stdout, done.stdout
