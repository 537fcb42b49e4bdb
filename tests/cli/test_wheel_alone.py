"""The package needs nothing of the checkout, and has nothing of the benchmarks."""

import ast
import os
import subprocess
import sys
from pathlib import Path

import pytest

import mlx_norms
from mlx_norms import commands
from support.variant import PATHS, ROOT

PACKAGE = Path(mlx_norms.__path__[0])
COMMANDS = {
    "info": [],
    "clear-cache": [],
    "run": ["program.py"],
    "compare": ["tiny:qwen3", "--prompt", "4", "--tokens", "2"],
    "demo": [],
    "selftest": [],
}


def imported(path):
    """The names in a module's imports, part by part; the first ones of absolute imports apart."""
    parts, roots = set(), set()
    for node in ast.walk(ast.parse(path.read_text())):
        if not isinstance(node, ast.Import | ast.ImportFrom):
            continue
        names = [each.name for each in node.names]
        if isinstance(node, ast.ImportFrom) and node.module:
            names.append(node.module)
        parts.update(part for name in names for part in name.split("."))
        if isinstance(node, ast.Import):
            roots.update(name.split(".")[0] for name in names)
        elif not node.level:
            roots.add(node.module.split(".")[0])
    return parts, roots


def test_it_imports_nothing_of_the_checkout():
    others = {path.stem for folder in (ROOT, *PATHS) for path in folder.iterdir()}
    others -= {"mlx_norms", *sys.stdlib_module_names}
    found = {path.name: imported(path)[1] & others for path in PACKAGE.rglob("*.py")}
    assert {name: roots for name, roots in found.items() if roots} == {}


def test_each_module_is_there_for_another():
    """And none for the benchmarks or tests alone."""
    files = list(PACKAGE.rglob("*.py"))
    parts = set().union(*(imported(path)[0] for path in files))
    own = {path for path in files if path.stem in ("__init__", "__main__", "_built")}
    own |= {PACKAGE / "commands" / f"{name.replace('-', '_')}.py" for name in COMMANDS}
    assert [path for path in files if path not in own and path.stem not in parts] == []
    assert not any("bench" in path.name for path in files)


def test_these_are_all_commands():
    assert commands.load().keys() == COMMANDS.keys()


@pytest.fixture
def alone(tmp_path):
    """Runs a command where there is no checkout, in a folder that has nothing else."""
    (tmp_path / "program.py").write_text("import mlx_norms; print(mlx_norms.is_patched())")
    path = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    path = [each for each in path if each and any(Path(each).glob("mlx_norms/_mlx_*"))]
    variables = {"PYTHONPATH": os.pathsep.join(path), "MLX_NORMS_CACHE": str(tmp_path / "cache")}

    def run(*arguments):
        return subprocess.run(
            [sys.executable, "-P", "-m", "mlx_norms", *arguments],
            cwd=tmp_path,
            env=os.environ | variables,
            capture_output=True,
            text=True,
        )

    return run


@pytest.mark.parametrize("name", COMMANDS)
def test_a_command_starts_alone(name, alone):
    done = alone(name, "--help")
    assert (done.returncode, done.stderr) == (0, "") and name in done.stdout


LONG = ("demo", "selftest")


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[pytest.mark.slow] * (name in LONG)) for name in COMMANDS]
)
def test_a_command_runs_alone(name, alone):
    done = alone(name, *COMMANDS[name])
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout


def test_the_benchmarks_are_said_to_be_elsewhere(alone):
    done = alone("bench", "norm", "--rows", "1")
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 1)
    assert "in a checkout of its repository, type  python bench norm" in done.stderr
