"""Backends and hypothesis profiles of the suite."""

import os
from pathlib import Path

import mlx.core as mx
import pytest
from hypothesis import settings

from mlx_norms import _ext

# A backend is one more entry here: every test of the ops takes it through the fixture below.
BACKENDS = {"cpu": mx.cpu}

settings.register_profile("ci", derandomize=True, max_examples=120, deadline=None, database=None)
settings.register_profile("explore", max_examples=2000, deadline=None)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "ci"))


def pytest_configure():
    """Where a build beside the installed one is to be tested, makes sure that it is."""
    wanted = os.environ.get("MLX_NORMS_UNDER_TEST")
    used = Path(_ext.__file__).parent
    if wanted and not used.samefile(wanted):
        raise pytest.UsageError(f"the extension to test is in {wanted}, the one found in {used}")


@pytest.fixture(scope="module", params=list(BACKENDS))
def backend(request):
    """Name of a backend, which is the default device while the tests of a module run."""
    before = mx.default_device()
    mx.set_default_device(BACKENDS[request.param])
    yield request.param
    mx.set_default_device(before)
