"""What tools/pairs.py says of a pair that does not work. It is run by hand."""

import runpy
import subprocess
import sys
from pathlib import Path

import pytest

from mlx_norms import _built
from mlx_versions import NANOBIND

SCRIPT = Path(__file__).parents[2] / "tools" / "pairs.py"

# What programs print, and the line that says most.
OUTPUTS = {
    "pip": (
        "  Downloading nanobind-3.1.0-py3-none-any.whl (316 kB)\n"
        "ERROR: Could not find a version that satisfies the requirement mlx[cpu]==9.9 (from "
        "versions: 0.0.1, 0.32.4)\nERROR: No matching distribution found for mlx[cpu]==9.9\n",
        "No matching distribution found for mlx[cpu]==9.9",
    ),
    "compiler": (
        f"      [7/9] Building CXX object x.o\n      FAILED: x.o\n"
        f"      {SCRIPT.parent.parent}/csrc/x.cpp:19:16: error: 'Data' is no type\n"
        "         19 | Data x;\n  ERROR: Failed building wheel for mlx_norms\n",
        "csrc/x.cpp:19:16: error: 'Data' is no type",
    ),
    "CMake": (
        "      CMake Error at CMakeLists.txt:47 (message):\n        Build against mlx-cpu.\n\n\n"
        "      *** CMake configuration failed\n",
        "Build against mlx-cpu.",
    ),
    "Python": (
        'Traceback (most recent call last):\n  File "<string>", line 1, in <module>\n'
        "ImportError: mlx_norms was built with nanobind 2.15.0.\n",
        "ImportError: mlx_norms was built with nanobind 2.15.0.",
    ),
    "pytest": (
        "F.\nFAILED test_nn.py::test_x\n1 failed, 1 passed in 1s\n",
        "1 failed, 1 passed in 1s",
    ),
    "nothing": ("", "exit status 1"),
}


@pytest.fixture(scope="module")
def pairs():
    return runpy.run_path(str(SCRIPT))


@pytest.mark.parametrize("program", OUTPUTS)
def test_reason(pairs, program):
    output, reason = OUTPUTS[program]
    assert pairs["reason"](output, 1) == reason


def test_a_crash_is_named_by_its_signal(pairs):
    with pytest.raises(pairs["Failed"], match="^ended by signal 11$"):
        pairs["run"](sys.executable, "-c", "import os; print('x'); os.kill(os.getpid(), 11)")


def test_the_pair_of_this_build_is_known(pairs):
    assert NANOBIND[_built.MLX_VERSION] == _built.NANOBIND_VERSION
    assert pairs["parse_pair"](_built.MLX_VERSION) == (
        _built.MLX_VERSION,
        _built.NANOBIND_VERSION,
    )


def test_its_tests_are_there(pairs):
    for name in [*pairs["TESTS"], *pairs["QUICK_TESTS"]]:
        assert (SCRIPT.parents[1] / name).exists()


def test_a_bad_pair_is_refused():
    done = subprocess.run([sys.executable, SCRIPT, "0.99"], capture_output=True, text=True)
    assert done.returncode == 2
    assert "'0.99' is not MLX,NANOBIND, as in 0.32.4,3.1.0, nor one of 0.31.2," in done.stderr
