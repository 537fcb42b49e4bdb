"""What tools/macos/check_wheel.py says of Mach-O files, good and bad ones."""

import re

import pytest

from macos import check_wheel, mlx_wheel
from macos.link import MacBuild

pytestmark = pytest.mark.build

NEWEST = mlx_wheel.MACOS[-1]


@pytest.fixture(scope="module")
def libmlx():
    return mlx_wheel.fetch() / "lib" / "libmlx.dylib"


@pytest.fixture(scope="module")
def extension():
    return MacBuild().link()


def test_signatures_by_apples_linker_and_by_zigs_are_good(libmlx, extension):
    assert [*check_wheel.signature(libmlx)] == []
    assert [*check_wheel.signature(extension)] == []


def test_a_changed_byte_breaks_the_signature(extension, tmp_path):
    content = bytearray(extension.read_bytes())
    content[0x5000] ^= 1
    changed = tmp_path / "changed.so"
    changed.write_bytes(content)
    (problem,) = check_wheel.signature(changed)
    begin, end = map(int, re.findall(r"\d+", problem))
    assert begin <= 0x5000 < end


def test_a_text_that_is_not_in_it_is_told(extension, monkeypatch):
    assert [*check_wheel.texts(extension)] == []
    texts = check_wheel.join.texts() | {"planted": "kernel void planted() {}"}
    monkeypatch.setattr(check_wheel.join, "texts", lambda: texts)
    assert [*check_wheel.texts(extension)] == ["it has not the text of planted"]


def test_paths_and_systems_of_another_file_are_told(libmlx):
    problems = " ".join(check_wheel.commands(libmlx))
    assert "its rpaths are []" in problems
    assert f"it is built for [(1, {NEWEST}, " in problems
    assert "it loads @rpath/libjaccl.dylib" in problems
    assert "arm64" not in problems


def test_another_abi_of_nanobind_is_told(extension, tmp_path):
    assert [*check_wheel.bindings(extension)] == []
    changed = tmp_path / "changed.so"
    content = extension.read_bytes()
    changed.write_bytes(re.sub(rb"(\0nanobind_\w+_v)\d\d\0", rb"\g<1>00\0", content))
    (problem,) = check_wheel.bindings(changed)
    assert "_v00'}, that of MLX {" in problem


def test_all_that_is_linked_to_is_there(extension):
    """But for the stub that stands for Python in this build."""
    problems = [*check_wheel.symbols(extension, systems=[NEWEST])]
    assert problems
    assert all(line.endswith(" of @rpath/libpython.dylib") for line in problems)


def test_what_is_not_there_is_told(extension, monkeypatch):
    symbols = check_wheel.symbols
    monkeypatch.setitem(symbols.__globals__, "libsystem", lambda: {"_free"})
    problems = [*symbols(extension, systems=[NEWEST])]
    assert f"macOS {NEWEST} has no _malloc of /usr/lib/libSystem.B.dylib" in problems
    assert f"macOS {NEWEST} has no _free of /usr/lib/libSystem.B.dylib" not in problems
