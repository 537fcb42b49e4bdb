"""The switch between fibers, on this processor; and the runtime compiled for arm64 Linux."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from metalsim.compiler import RUNTIME, SHIM, find_compiler

PROGRAM = Path(__file__).with_name("fiber_switch.cpp")
FLAGS = ["-std=c++20", "-O2", "-fPIC", "-Wall", "-Werror"]


def run(*command):
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def zig(*arguments):
    run(sys.executable, "-m", "ziglang", "c++", "-target", "aarch64-linux-gnu", *arguments)


@pytest.mark.instrument
@pytest.mark.parametrize("optimization", ["-O0", "-O2"])
def test_switch(tmp_path, optimization):
    sources = [PROGRAM, RUNTIME / "fiber.cpp"]
    run(find_compiler(), *FLAGS, optimization, f"-I{RUNTIME}", *sources, "-o", tmp_path / "switch")
    assert "16 fibers, 32016 switches, 0 lost values" in run(tmp_path / "switch")


@pytest.mark.build
@pytest.mark.instrument
@pytest.mark.parametrize("source", sorted(RUNTIME.glob("*.cpp")), ids=lambda path: path.stem)
def test_runtime_for_arm64_linux(tmp_path, source):
    """It compiles, with the switch that is in assembly and with no other."""
    compiled = tmp_path / "source.o"
    zig(*FLAGS, "-fno-exceptions", "-fno-rtti", "-c", source, "-o", compiled)
    assert "AArch64" in run("readelf", "-h", compiled)
    symbols = run("readelf", "-Ws", compiled)
    assert not re.search("(swap|make|set|get)context", symbols)
    if source.stem == "fiber":
        assert re.search(r"FUNC +GLOBAL HIDDEN +\d+ metalsim_switch$", symbols, re.M)


@pytest.mark.build
@pytest.mark.parametrize("flags", [[], ["-DMSL_CHECKED"]], ids=["unchecked", "checked"])
def test_shim_for_arm64_linux(tmp_path, flags):
    """What each compiled kernel includes."""
    unit = tmp_path / "unit.cpp"
    unit.write_text(f'#include "{SHIM / "metalsim.h"}"\n')
    zig("-std=c++20", "-fno-exceptions", "-w", *flags, "-c", unit, "-o", tmp_path / "unit.o")
