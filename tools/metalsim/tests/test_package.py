"""The package alone: its imports, the files of its wheel, and a run where that is installed."""

import ast
import os
import subprocess
import sys
import venv
import zipfile
from pathlib import Path

import pytest

PROJECT = Path(__file__).parents[1]
SOURCES = PROJECT / "metalsim"
# The reader is a link in a checkout, which rglob does not follow.
FILES = sorted({path for of in (SOURCES, SOURCES / "msl") for path in of.rglob("*.*")})
OTHERS = {"metalsim", "numpy", "rich"}
KERNEL = """
kernel void shift(device float* x, uint t [[thread_position_in_grid]]) {
  x[t] = x[t + 1];
}
"""


def imported(path):
    """Top-level names of the modules that a file imports, also within functions."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name.split(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and not node.level:
            yield node.module.split(".")[0]


def run(*command, status=0, **keywords):
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True, **keywords)
    assert done.returncode == status, done.stdout + done.stderr
    return done.stdout


@pytest.mark.parametrize(
    "path",
    [path for path in FILES if path.suffix == ".py"],
    ids=lambda path: str(path.relative_to(SOURCES)),
)
def test_imports(path):
    assert {*imported(path)} <= OTHERS | sys.stdlib_module_names


@pytest.mark.parametrize("path", sorted(PROJECT.glob("tests/**/*.py")), ids=lambda path: path.stem)
def test_imports_of_tests(path):
    own = {"planted", "published", "pytest"}
    assert {*imported(path)} <= OTHERS | own | sys.stdlib_module_names


@pytest.mark.build
@pytest.mark.instrument
def test_wheel(tmp_path):
    """It is built from the sdist, has each file, and runs in an environment of its own."""
    run(sys.executable, "-m", "build", "--outdir", tmp_path / "dist", PROJECT)
    (wheel,) = tmp_path.glob("dist/*.whl")
    sources = {str(path.relative_to(PROJECT)) for path in FILES if path.suffix != ".pyc"}
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
    assert {name for name in names if ".dist-info/" not in name} == sources
    assert any(name.endswith("licenses/LICENSE") for name in names)

    venv.create(tmp_path / "venv", with_pip=True)
    bin_ = tmp_path / "venv/bin"
    run(bin_ / "pip", "install", "-q", "--disable-pip-version-check", wheel)
    (tmp_path / "shift.metal").write_text(KERNEL)
    environment = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
    environment["METALSIM_CACHE"] = str(tmp_path / "cache")
    keywords = {"cwd": tmp_path, "env": environment}
    for command in ([bin_ / "metalsim"], [bin_ / "python", "-m", "metalsim"]):
        assert "buffer 0: device float * x" in run(*command, "shift.metal", **keywords)
        launch = ["shift", "--grid", "64", "-a", "x=float32:65:arange", "-o", "x"]
        output = run(*command, "shift.metal", *launch, status=1, **keywords)
        assert "shift.metal:3: device race in 'shift'" in output
    for check in ("rules", "address_spaces"):
        run(bin_ / "python", "-m", f"metalsim.{check}", "shift.metal", **keywords)
