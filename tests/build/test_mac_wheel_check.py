"""What tools/macos/check_wheel.py says of Mach-O files, good and bad ones."""

import re
import runpy
import sys
from pathlib import Path

import pytest

from macos import mlx_wheel
from macos.link import MacBuild

pytestmark = pytest.mark.build

SCRIPT = Path(__file__).parents[2] / "tools" / "macos" / "check_wheel.py"
NEWEST = mlx_wheel.MACOS[-1]


@pytest.fixture(scope="module")
def checks():
    path = sys.path[:]
    yield runpy.run_path(str(SCRIPT))
    sys.path[:] = path


@pytest.fixture(scope="module")
def libmlx():
    return mlx_wheel.fetch() / "lib" / "libmlx.dylib"


@pytest.fixture(scope="module")
def extension():
    return MacBuild().link()


def test_signatures_by_apples_linker_and_by_zigs_are_good(checks, libmlx, extension):
    assert [*checks["signature"](libmlx)] == []
    assert [*checks["signature"](extension)] == []


def test_a_changed_byte_breaks_the_signature(checks, extension, tmp_path):
    content = bytearray(extension.read_bytes())
    content[0x5000] ^= 1
    changed = tmp_path / "changed.so"
    changed.write_bytes(content)
    (problem,) = checks["signature"](changed)
    begin, end = map(int, re.findall(r"\d+", problem))
    assert begin <= 0x5000 < end


def test_a_text_that_is_not_in_it_is_told(checks, extension, monkeypatch):
    assert [*checks["texts"](extension)] == []
    texts = checks["join"].texts() | {"planted": "kernel void planted() {}"}
    monkeypatch.setattr(checks["join"], "texts", lambda: texts)
    assert [*checks["texts"](extension)] == ["it has not the text of planted"]


def test_paths_and_systems_of_another_file_are_told(checks, libmlx):
    problems = " ".join(checks["commands"](libmlx))
    assert "its rpaths are []" in problems
    assert f"it is built for [(1, {NEWEST}, " in problems
    assert "it loads @rpath/libjaccl.dylib" in problems
    assert "arm64" not in problems


def test_another_abi_of_nanobind_is_told(checks, extension, tmp_path):
    assert [*checks["bindings"](extension)] == []
    changed = tmp_path / "changed.so"
    content = extension.read_bytes()
    changed.write_bytes(re.sub(rb"(\0nanobind_\w+_v)\d\d\0", rb"\g<1>00\0", content))
    (problem,) = checks["bindings"](changed)
    assert "_v00'}, that of MLX {" in problem


def test_all_that_is_linked_to_is_there(checks, extension):
    """But for the stub that stands for Python in this build."""
    problems = [*checks["symbols"](extension, [NEWEST])]
    assert problems
    assert all(line.endswith(" of @rpath/libpython.dylib") for line in problems)


def test_what_is_not_there_is_told(checks, extension, monkeypatch):
    symbols = checks["symbols"]
    monkeypatch.setitem(symbols.__globals__, "libsystem", lambda: {"_free"})
    problems = [*symbols(extension, [NEWEST])]
    assert f"macOS {NEWEST} has no _malloc of /usr/lib/libSystem.B.dylib" in problems
    assert f"macOS {NEWEST} has no _free of /usr/lib/libSystem.B.dylib" not in problems
