"""The norm extension's own way to the software Metal device."""

import importlib.util
import shutil
import subprocess
import sys

import pytest

import hostmetal
from hostmetal.build import ROOT, for_tests

pytestmark = [pytest.mark.instrument, pytest.mark.build]


@pytest.fixture
def metallib(tmp_path):
    """The module that loads the metallib beside it, in a folder of its own."""
    build = for_tests("_metallib")
    sys.path.insert(0, str(build.site))
    hostmetal.start().clear()
    file = shutil.copy(next(build.build.glob("_metallib*.so")), tmp_path)
    spec = importlib.util.spec_from_file_location("_metallib", file)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    yield module
    sys.path.remove(str(build.site))
    hostmetal.start().clear()


def test_no_metallib_beside_the_extension(metallib, tmp_path):
    file = tmp_path / "mlx_norms.metallib"
    with pytest.raises(RuntimeError, match=f"there is no file {file} to load it from"):
        metallib.load()
    join(file)
    with pytest.raises(RuntimeError, match=f"there is no file {file} to load it from"):
        metallib.load()  # what could not be built is not tried again


def test_metallib_beside_the_extension(metallib, tmp_path):
    join(tmp_path / "mlx_norms.metallib")
    metallib.load()


def join(file):
    command = [sys.executable, ROOT / "kernels" / "join.py", "metal", file]
    subprocess.run(command, check=True)
