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
    assert "uninitialized threadgroup" in output


def test_line_100(tmp_path, capsys):
    """It is a number, not the emoji :100:."""
    path = tmp_path / "k.metal"
    path.write_text("\n" * 98 + "kernel void k(device int* x) {\n  x[9] = 1;\n}\n")
    assert main([str(path), "k", "--grid", "1", "-a", "x=int32:1"]) == 1
    assert "k.metal:100: out-of-bounds device in 'k'" in capsys.readouterr().out


def test_list(path, capsys):
    assert main([path]) == 0
    output = capsys.readouterr().out
    assert "buffer 1: device float * y" in output
    assert "threadgroup 0: threadgroup float * scratch" in output
    assert "function constant 0: negate" in output


def test_list_of_none(tmp_path, capsys):
    (tmp_path / "none.metal").write_text("inline int one() { return 1; }\n")
    assert main([str(tmp_path / "none.metal")]) == 0
    assert "none.metal has no kernels" in capsys.readouterr().out


COPY = ["copy", "--grid", "64", "-a", "y=float32:64:empty", "-a", "by=1"]
REVERSED = ["reversed", "--grid", "64", "-a", "x=float32:64", "-a", "y=float32:64"]


@pytest.mark.parametrize(
    "arguments, message",
    [
        (["nothing", "--grid", "1"], "no kernel 'nothing'; there are: copy, reversed"),
        (["--grid", "1"], "KERNEL is missing; there are: copy, reversed"),
        (["copy"], "kernel 'copy' needs --grid or --groups"),
        (["copy", "--grid", "0"], "grid is (0,)"),
        (COPY, "buffer 'x' (0) is not bound"),
        ([*COPY, "-a", "z=1"], "no buffer 'z'; kernel 'copy' has x (0), y (1), by (2)"),
        ([*COPY, "-a", "x=double:1"], "argument 'x': 'double' is none of"),
        ([*COPY, "-a", "x=float32:8by8"], "argument 'x': '8by8' is no shape"),
        ([*COPY, "-a", "x=float32:8:many"], "argument 'x': 'many' is none of normal, uniform,"),
        ([*COPY, "-a", "x=float32:8:0:0"], "argument 'x': 'float32:8:0:0' has more than two"),
        ([*COPY, "-a", "x=int32:64"], "argument 'x' has dtype int32; the kernel takes float32"),
        ([*COPY, "-a", "x=missing.npy"], "argument 'x': [Errno 2]"),
        ([*COPY, "-a", "y=1"], "argument 'y' is given twice"),
        ([*COPY, "-a", "x=float32:64", "-o", "z"], "output 'z' needs an array"),
        ([*COPY, "-a", "x=float32:64", "-o", "by"], "output 'by' needs an array"),
        ([*COPY, "-a", "x=float32:64", "-c", "negate=no"], "function constant 'negate': 'no'"),
        ([*COPY, "-a", "x=float32:64", "-c", "other=1"], "no function constant 'other'"),
        (REVERSED, "threadgroup argument 'scratch' (0) has no size"),
        ([*REVERSED, "-t", "0=big"], "threadgroup argument '0': 'big' is no size"),
        ([*REVERSED, "-t", "0=256", "-t", "1=16"], "no threadgroup argument 1"),
        (["-I", "x", "--cxx", "no-compiler"], "metalsim needs no-compiler"),
    ],
)
def test_unusable(path, capsys, arguments, message):
    assert main([path, *arguments]) == 2
    printed = capsys.readouterr()
    assert message in printed.err and not printed.out


@pytest.mark.parametrize(
    "arguments, message",
    [
        (["--grid", "x"], "argument --grid: 'x' is not of the form N"),
        (["--grid", "1", "--groups", "1"], "not allowed with argument --grid"),
        (["--orders", "0"], "argument --orders: '0' is no positive number"),
        (["-a", "x"], "argument -a/--arg: 'x' has no '='"),
    ],
)
def test_options_that_are_not_understood(path, capsys, arguments, message):
    with pytest.raises(SystemExit, match="2"):
        main([path, "copy", *arguments])
    assert message in capsys.readouterr().err


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
    assert not Argument("int32:3:empty").value.initialized
    assert Argument("float16:2x2:arange").array.tolist() == [[0, 1], [2, 3]]
    assert Argument("float16:3:1e-3").array.tolist() == [np.float16(1e-3)] * 3
    assert [number(t) for t in ("true", "7", "0x10", "1e-5")] == [True, 7, 16, 1e-5]
    with pytest.raises(ValueError):
        number("seven")
