"""The macOS that the kernels are compiled for."""

import re
import subprocess
import sys

import pytest

import macos_wheel
from variant import ROOT

PROJECT = """cmake_minimum_required(VERSION 3.27)
project(kernels LANGUAGES CXX)
find_package(Python REQUIRED COMPONENTS Interpreter)
include({mlx}/share/cmake/MLX/extension.cmake)
include({root}/kernels/kernels.cmake)
add_library(_ext OBJECT empty.cpp)
mlx_norms_build_metallib(_ext)
"""


@pytest.mark.parametrize(
    "target, used",
    [(None, "14.0"), ("11.0", "14.0"), ("14", "14"), ("14.2", "14.2"), ("26.0", "26.0")],
)
def test_kernels_are_compiled_for_macos_14_or_newer(target, used, tmp_path):
    """MLX runs on none older; conda sets 11.0, whose Metal is too old for the kernels."""
    (tmp_path / "empty.cpp").touch()
    project = PROJECT.format(mlx=macos_wheel.fetch(), root=ROOT)
    (tmp_path / "CMakeLists.txt").write_text(project)
    command = ["cmake", "-S", tmp_path, "-B", tmp_path, "-GNinja"]
    command += [f"-DPython_EXECUTABLE={sys.executable}"]
    command += [f"-DCMAKE_OSX_DEPLOYMENT_TARGET={target}"] if target else []
    subprocess.run(command, check=True, capture_output=True)
    command = ["ninja", "-C", tmp_path, "-t", "commands"]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    metal = [line for line in done.stdout.splitlines() if "xcrun -sdk macosx metal" in line]
    assert metal
    for line in metal:
        assert re.findall(r"-mmacosx-version-min=(\S+)", line) == [used]
