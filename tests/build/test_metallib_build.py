"""The build of the metallibs, with a stand-in for Xcode's Metal compiler."""

import os
import re
import shutil
import subprocess
import sys

import pytest

from support.variant import ROOT

# Compiles and links by copying, and says with what arguments; it refuses what has the word.
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
if grep -q no_such_type "$from"; then
  echo "$from:7:1: error: unknown type name 'no_such_type'" >&2
  echo "1 error generated." >&2
  exit 1
fi
cp "$from" "$to"
"""
PROJECT = """cmake_minimum_required(VERSION 3.27)
project(metallib LANGUAGES CXX)
find_package(Python REQUIRED COMPONENTS Interpreter)
include({root}/kernels/kernels.cmake)
add_library(_ext OBJECT empty.cpp)
mlx_norms_build_metallibs(_ext)
"""

pytestmark = pytest.mark.applies(sys.platform != "darwin")  # where the real compiler may be


class Project:
    """The kernels, copied to a folder to be changed, and a build of their metallibs."""

    def __init__(self, folder):
        self.folder = folder
        (folder / "bin").mkdir()
        xcrun = folder / "bin" / "xcrun"
        xcrun.write_text(XCRUN)
        xcrun.chmod(0o755)
        shutil.copytree(ROOT / "kernels", folder / "kernels")
        (folder / "empty.cpp").touch()
        (folder / "CMakeLists.txt").write_text(PROJECT.format(root=folder))
        self.options = ["-GNinja", f"-DPython_EXECUTABLE={sys.executable}"]

    def run(self, *command, **environment):
        path = f"{self.folder / 'bin'}:{os.environ['PATH']}"
        environment = os.environ | {"PATH": path} | environment
        return subprocess.run(command, env=environment, capture_output=True, text=True)

    def build(self, *options, **environment):
        """Configures and builds; returns the exit status and what was said."""
        build = self.folder / "build"
        done = self.run("cmake", "-S", self.folder, "-B", build, *self.options, *options)
        assert done.returncode == 0, done.stderr
        done = self.run("cmake", "--build", build, **environment)
        if done.returncode == 0:
            installed = self.run("cmake", "--install", build, "--prefix", self.folder / "site")
            assert installed.returncode == 0, installed.stderr
        return done.returncode, done.stdout + done.stderr

    @property
    def metallibs(self):
        """What is installed, by the library's name."""
        files = (self.folder / "site" / "mlx_norms").glob("*")
        return {
            re.fullmatch(r"mlx_norms_(\w+)_[0-9a-f]{16}\.metallib", f.name)[1]: f for f in files
        }

    def texts(self):
        out = self.folder / "texts"
        out.mkdir(exist_ok=True)
        command = [sys.executable, self.folder / "kernels/join.py", "metal", out]
        subprocess.run(command, check=True)
        return {path.stem: path.read_text() for path in out.glob("*.metal")}

    def plant(self, file):
        with open(self.folder / "kernels" / file, "a") as kernel:
            kernel.write("no_such_type planted;\n")


@pytest.fixture
def project(tmp_path):
    return Project(tmp_path)


def test_a_metallib_for_each_library(project):
    status, said = project.build()
    assert status == 0 and "refuses" not in said
    assert {name: file.read_text() for name, file in project.metallibs.items()} == project.texts()
    calls = (project.folder / "bin" / "calls").read_text()
    assert "-sdk macosx metal" in calls
    assert "-fno-fast-math" in calls


def test_what_does_not_compile_is_said_in_a_line(project):
    assert project.build()[0] == 0
    before = set(project.metallibs)
    project.plant("norm/norm.metal")
    shutil.rmtree(project.folder / "site")
    status, said = project.build()
    assert status == 0
    (line,) = [line for line in said.splitlines() if line.startswith("mlx_norms:")]
    assert "refuses library norm," in line and "unknown type name 'no_such_type'" in line
    assert set(project.metallibs) == before - {"norm"}


def test_where_metallibs_are_required(project):
    project.plant("linear/norm_linear.metal")
    status, said = project.build(MLX_NORMS_REQUIRE_METALLIB="1")
    assert status != 0 and "refuses library linear," in said


@pytest.mark.parametrize(
    "target, used",
    [
        ("11.0", "14.0"),
        *(
            pytest.param(*pair, marks=pytest.mark.slow)
            for pair in [(None, "14.0"), ("14", "14"), ("14.2", "14.2"), ("26.0", "26.0")]
        ),
    ],
)
def test_kernels_are_compiled_for_macos_14_or_newer(project, target, used):
    """MLX runs on none older; conda sets 11.0, whose Metal is too old for the kernels."""
    status, _ = project.build(*([f"-DCMAKE_OSX_DEPLOYMENT_TARGET={target}"] if target else []))
    assert status == 0
    calls = (project.folder / "bin" / "calls").read_text().splitlines()
    assert len(calls) == 2 * len(project.texts())
    for call in calls:
        assert re.findall(r"-mmacosx-version-min=(\S+)", call) == [used]
