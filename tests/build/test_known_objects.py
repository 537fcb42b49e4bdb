"""Which objects of a checkout's builds a copy takes."""

import json
import os
import shutil
import subprocess
from pathlib import Path

import pytest

from support import known_objects

PROJECT = {
    "CMakeLists.txt": """
cmake_minimum_required(VERSION 3.27)
project(small CXX)
add_custom_command(
  OUTPUT made.cpp
  COMMAND ${CMAKE_COMMAND} -E copy ${CMAKE_CURRENT_SOURCE_DIR}/made.txt made.cpp)
add_executable(small main.cpp with.cpp without.cpp made.cpp)
""",
    "made.txt": "int made() { return 0; }\n",
    "number.h": "inline int number() { return 1; }\n",
    "main.cpp": "int with(); int without(); int made();\n"
    "int main() { return with() + without() + made(); }\n",
    "with.cpp": '#include "number.h"\nint with() { return number(); }\n',
    "without.cpp": "int without() { return 10; }\n",
}


class Tree:
    """A small project."""

    def __init__(self, root):
        self.root = root

    def write(self):
        self.root.mkdir()
        for name, text in PROJECT.items():
            (self.root / name).write_text(text)
        return self

    def build(self, *options, environment=None):
        """Builds it and returns what its program does."""
        env = os.environ | (environment or {})
        configure = ["cmake", "-S", self.root, "-B", self.root / "build/it", "-GNinja", *options]
        for command in (configure, ["cmake", "--build", self.root / "build/it"]):
            subprocess.run(command, check=True, env=env, stdout=subprocess.DEVNULL)
        return subprocess.run([self.root / "build/it/small"]).returncode


@pytest.fixture
def checkout(tmp_path):
    tree = Tree(tmp_path / "checkout").write()
    assert tree.build() == 11
    return tree


@pytest.fixture
def copy(tmp_path, checkout):
    ignored = shutil.ignore_patterns("build")
    return Tree(Path(shutil.copytree(checkout.root, tmp_path / "copy", ignore=ignored)))


def known(checkout, copy):
    """The variables, and names of the objects that are known."""
    file = copy.root.parent / "objects"
    environment = known_objects.environment(checkout.root, copy.root, file)
    objects = json.loads(file.read_text())["objects"].values()
    return environment, {Path(path).name for path in objects}


def test_what_includes_a_changed_header_is_compiled(checkout, copy):
    (copy.root / "number.h").write_text("inline int number() { return 2; }\n")
    environment, names = known(checkout, copy)
    assert names == {"main.cpp.o", "without.cpp.o"}
    # Objects of another text where the known ones are: the copy's program shows which it took.
    (checkout.root / "without.cpp").write_text("int without() { return 40; }\n")
    assert checkout.build() == 41
    assert copy.build(environment=environment) == 42


def test_what_is_older_than_the_checkout_is_compiled(checkout, copy):
    text = "int without() { return 20; }\n"
    for tree in (checkout, copy):
        (tree.root / "without.cpp").write_text(text)
    environment, names = known(checkout, copy)
    assert names == {"main.cpp.o", "with.cpp.o"}
    assert copy.build(environment=environment) == 21


def test_other_options_take_nothing(checkout, copy):
    (copy.root / "without.cpp").write_text("int without() { return N; }\n")
    environment, names = known(checkout, copy)
    assert names == {"main.cpp.o", "with.cpp.o"}
    (checkout.root / "build/it/CMakeFiles/small.dir/with.cpp.o").unlink()
    assert copy.build("-DCMAKE_CXX_FLAGS=-DN=30", environment=environment) == 31
