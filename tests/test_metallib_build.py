"""The build of the metallib, with a stand-in for Xcode's Metal compiler."""

import os
import subprocess
import sys

import pytest

import macos_wheel
from variant import ROOT

# Compiles and links by copying, and says with what arguments.
XCRUN = """#!/bin/sh
echo "$@" >> "$(dirname "$0")/calls"
while [ $# -gt 0 ]; do
  case "$1" in
    -c) from=$2; shift ;;
    -o) to=$2; shift ;;
    *.air) from=$1 ;;
  esac
  shift
done
cp "$from" "$to"
"""
PROJECT = """cmake_minimum_required(VERSION 3.27)
project(metallib LANGUAGES CXX)
find_package(Python REQUIRED COMPONENTS Interpreter)
include({mlx}/share/cmake/MLX/extension.cmake)
include({root}/kernels/kernels.cmake)
add_library(_ext OBJECT empty.cpp)
mlx_norms_build_metallib(_ext)
get_target_property(definitions _ext COMPILE_DEFINITIONS)
message(STATUS "definitions: ${{definitions}}")
"""


@pytest.mark.applies(sys.platform != "darwin")  # where the real compiler may be
def test_metallib_is_built_from_the_joined_text(tmp_path):
    (tmp_path / "bin").mkdir()
    xcrun = tmp_path / "bin" / "xcrun"
    xcrun.write_text(XCRUN)
    xcrun.chmod(0o755)
    (tmp_path / "empty.cpp").touch()
    project = PROJECT.format(mlx=macos_wheel.fetch(), root=ROOT)
    (tmp_path / "CMakeLists.txt").write_text(project)
    path = f"{xcrun.parent}:{os.environ['PATH']}"
    environment = {**os.environ, "PATH": path}
    configure = ["cmake", "-S", tmp_path, "-B", tmp_path / "build", "-GNinja"]
    configure += [f"-DPython_EXECUTABLE={sys.executable}"]
    for command in (configure, ["cmake", "--build", tmp_path / "build"]):
        done = subprocess.run(command, env=environment, capture_output=True, text=True)
        assert done.returncode == 0, done.stdout + done.stderr
        if command is configure:
            assert "definitions: MLX_NORMS_METALLIB" in done.stdout
    joined = tmp_path / "joined.metal"
    subprocess.run([sys.executable, ROOT / "kernels/join.py", "metal", joined], check=True)
    metallib = tmp_path / "build" / "mlx_norms.metallib"
    assert metallib.read_text() == joined.read_text()
    calls = (xcrun.parent / "calls").read_text()
    assert "-sdk macosx metal" in calls
    assert "-fno-fast-math" in calls and "-mmacosx-version-min=14.0" in calls
