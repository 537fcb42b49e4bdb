"""`python -m metalsim` and the place of calls."""

import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from metalsim.__main__ import main
from metalsim.arguments import Argument, number

pytestmark = pytest.mark.instrument

SOURCE = """
#include <metal_stdlib>
using namespace metal;
constant bool negate [[function_constant(0)]];

kernel void copy(
    device const float* x [[buffer(0)]],
    device float* y [[buffer(1)]],
    constant float& by [[buffer(2)]],
    uint i [[thread_position_in_grid]]) {
  y[i] = (negate ? -x[i] : x[i]) * by;
}

kernel void reversed(
    device const float* x [[buffer(0)]],
    device float* y [[buffer(1)]],
    threadgroup float* scratch [[threadgroup(0)]],
    uint i [[thread_position_in_grid]]) {
  scratch[i] = x[i];
  y[i] = scratch[63 - i];
}
"""


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    if not (shutil.which("clang++-16") or shutil.which("g++")):
        pytest.skip("instrument missing: clang++-16 or g++")
    path = tmp_path_factory.mktemp("cli") / "kernels.metal"
    path.write_text(SOURCE)
    return str(path)


def test_clean_kernel(path, capsys):
    arguments = ["copy", "--grid", "64", "-a", "x=float32:64:arange", "-a", "y=float32:64:empty"]
    status = main([path, *arguments, "-a", "2=0.5", "-c", "negate=true", "-o", "y"])
    output = capsys.readouterr().out
    assert status == 0
    assert "-0.5" in output and "-31.5" in output
    assert all(text in output for text in ("copy", "256", "bytes read", "bytes written"))


def test_faults(path, capsys):
    arguments = ["reversed", "--grid", "64", "--group", "64", "-t", "0=256", "--orders", "2"]
    status = main([path, *arguments, "-a", "x=float32:64:1", "-a", "y=float32:64"])
    output = capsys.readouterr().out
    assert status == 1
    line = SOURCE.splitlines().index("  y[i] = scratch[63 - i];") + 1
    assert f"{path}:{line}: threadgroup race in 'reversed'" in output
    assert "uninitialised threadgroup" in output


def test_list(path, capsys):
    assert main([path, "--list"]) == main([path]) == 0
    output = capsys.readouterr().out
    assert "buffer 1: device float * y" in output
    assert "threadgroup 0: threadgroup float * scratch" in output


@pytest.mark.parametrize(
    "arguments, message",
    [
        (["nothing", "--grid", "1"], "no kernel 'nothing'"),
        (["copy", "--grid", "1"], "buffer 'x' (0) is not bound"),
        (["copy", "--grid", "1", "-a", "x=double:1"], "'double' is none of"),
        (["copy", "--grid", "1", "-a", "x=missing.npy"], "missing.npy"),
        (["--list", "-I", "x", "--cxx", "no-compiler"], "metalsim needs no-compiler"),
    ],
)
def test_unusable(path, capsys, arguments, message):
    assert main([path, *arguments]) == 2
    assert message in capsys.readouterr().out


def test_as_a_command(path):
    command = [sys.executable, "-m", "metalsim", path, "reversed", "--grid", "64"]
    command += ["--group", "64", "-t", "0=256", "-a", "x=float32:64", "-a", "y=float32:64"]
    folder = Path(__file__).parents[1]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True)
    assert done.returncode == 1 and "threadgroup race" in done.stdout


def test_arguments(tmp_path):
    np.save(tmp_path / "x.npy", np.arange(4))
    np.testing.assert_array_equal(Argument(str(tmp_path / "x.npy")).array, np.arange(4))
    assert Argument("bfloat16:2x3:1.5").array.shape == (2, 3)
    np.testing.assert_array_equal(Argument("bfloat16:2:1.5").numbers(), [1.5, 1.5])
    assert not Argument("int32:3:empty").value.initialised
    assert Argument("float16:2x2:arange").array.tolist() == [[0, 1], [2, 3]]
    assert [number(t) for t in ("true", "7", "0x10", "1e-5")] == [True, 7, 16, 1e-5]
    with pytest.raises(ValueError):
        number("seven")
