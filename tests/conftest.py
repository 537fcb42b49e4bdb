"""Backends and hypothesis profiles of the suite."""

import gc
import os
import sysconfig
from pathlib import Path

import mlx.core as mx
import pytest
from hypothesis import HealthCheck, settings

from fuzz.backends import fuse_compiled
from mlx_norms import _built, _ext
from support import inputs

# A new backend is one more entry here, since every test of the ops uses the fixture below. The
# simulated Metal device runs on CPU streams (tools/hostmetal).
BACKENDS = {"cpu": mx.cpu, "cuda": mx.gpu, "metal": mx.gpu, "metal-sim": mx.cpu}

LARGE_BYTES = 48 << 30

# The time that a test takes does not decide it.
settings.register_profile("untimed", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile(
    "ci", settings.get_profile("untimed"), derandomize=True, max_examples=120, database=None
)
settings.register_profile("explore", settings.get_profile("untimed"), max_examples=2000)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "ci"))


def pytest_addoption(parser):
    parser.addoption("--backend", choices=BACKENDS, default="cpu", help="what runs the ops")
    parser.addoption("--slow", action="store_true", help="less of what takes long, as if simulated")


def pytest_configure(config):
    """Checks that the build and the backend in use are the requested ones."""
    # Tests take this environment's cmake and ninja, whether it is activated or not.
    os.environ["PATH"] = os.pathsep.join([sysconfig.get_path("scripts"), os.environ["PATH"]])
    backend = config.getoption("--backend")
    if backend not in _built.BACKENDS:
        raise pytest.UsageError(f"{_ext.__file__} was not built for {backend}")
    inputs.SLOW = backend == "metal-sim" or config.getoption("--slow")
    inputs.COMPILES = backend in ("cuda", "metal")
    # The suite is the check here: a kernel that fails must not be replaced by MLX's ops.
    os.environ["MLX_NORMS_SELF_CHECK"] = "0"
    # MLX's matmuls use TF32 on CUDA unless this is set before the first one.
    os.environ.setdefault("MLX_ENABLE_TF32", "0")
    wanted = os.environ.get("MLX_NORMS_UNDER_TEST")
    used = Path(_ext.__file__).parents[1]
    if wanted and not used.samefile(wanted):
        raise pytest.UsageError(f"the extension to test is in {wanted}, the one found in {used}")


def pytest_collection_modifyitems(config, items):
    """Deselects tests that do not concern this backend or machine; skips are for missing tools.

    A test without the backend fixture runs once, with the CPU, and a large one where it fits.
    """
    backend = config.getoption("--backend")
    cuda = backend == "cuda"
    fits = cuda and mx.device_info(mx.gpu)["total_memory"] >= LARGE_BYTES
    runs = {"large": fits, "cuda": cuda, "gpu": backend != "cpu"}

    def selected(item):
        named = [mark.args for mark in item.iter_markers("backends")]
        if backend != "cpu" and "backend" not in item.fixturenames and not named:
            return False
        if backend != "metal-sim" and "launches" in item.fixturenames:
            return False
        return all(backend in names for names in named) and all(
            runs.get(mark.name, True) and (mark.name != "applies" or mark.args[0])
            for mark in item.iter_markers()
        )

    config.hook.pytest_deselected(items=[item for item in items if not selected(item)])
    items[:] = filter(selected, items)


def pytest_collection_finish():
    """Some tests collect garbage at each step, which need not look at thousands of items again."""
    gc.collect()
    gc.freeze()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item, call):
    """Fails a test that is skipped for any reason other than a missing tool."""
    report = yield
    if report.skipped and "instrument missing" not in str(report.longrepr):
        report.outcome = "failed"
        report.longrepr = f"skipped, but for no missing instrument: {report.longrepr}"
    return report


def pytest_generate_tests(metafunc):
    if "backend" in metafunc.fixturenames:
        backend = metafunc.config.getoption("--backend")
        metafunc.parametrize("backend", [backend], indirect=True, scope="module")


@pytest.fixture(scope="module")
def backend(request):
    """The backend's name; it is the default device while the tests of a module run."""
    before = mx.default_device()
    mx.set_default_device(BACKENDS[request.param])
    # MLX traces compiled functions again after a device's first operation.
    mx.eval(mx.zeros(1) + 1)
    yield request.param
    mx.set_default_device(before)


@pytest.fixture
def launches(request, backend):
    """The launches that evaluating some arrays takes; only the simulated device counts them."""
    simulator = request.getfixturevalue("simulator")

    def launches(*arrays):
        simulator.clear()
        mx.eval(*arrays)
        simulator.wait()
        return list(simulator.launches)

    return launches


@pytest.fixture
def no_fusion():
    """Of elementwise ops by mx.compile, each of whose kernels takes seconds to compile.

    Not for tests that call a compiled function of a package, such as mlx.nn.gelu: it would stay as
    it is traced here, and passes would not know it in later tests.
    """
    fuse_compiled(False)
    yield
    fuse_compiled(True)


@pytest.fixture
def on_the_cpu():
    """MLX's default device is the CPU."""
    before = mx.default_device()
    mx.set_default_device(mx.cpu)
    yield
    mx.set_default_device(before)
