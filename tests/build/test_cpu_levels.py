"""Which levels of the CPU kernels CMake builds."""

import platform
import re
import subprocess
import sys

import pytest

from mlx_norms import _ext
from support.variant import ROOT

LEVELS = {"baseline"}
if platform.machine() in ("x86_64", "AMD64"):
    LEVELS |= {"avx2", "avx512", "avx512bf16"}
ALL = "-DMLX_NORMS_CPU_LEVELS=all"
BASELINE = "-DMLX_NORMS_CPU_LEVELS=baseline"


def configure(directory, *options):
    """Configures a build; returns what CMake says, and what it would compile."""
    command = ["cmake", "-S", ROOT, "-B", directory, "-GNinja"]
    command += [f"-DPython_EXECUTABLE={sys.executable}", *options]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != 0:
        return " ".join(done.stderr.split()), ""
    command = ["ninja", "-C", directory, "-t", "commands", "_ext"]
    return "", subprocess.run(command, check=True, capture_output=True, text=True).stdout


@pytest.mark.parametrize(
    "options, levels",
    [([], {"baseline", *_ext.cpu_isas()[:1]}), ([ALL], LEVELS), ([BASELINE], {"baseline"})],
    ids=["by default", "all", "baseline"],
)
def test_levels(options, levels, tmp_path):
    """isa.cpp knows of those that are built, and of no other."""
    error, commands = configure(tmp_path, *options)
    assert not error
    assert set(re.findall(r"-DMLX_NORMS_KERNELS=kernels_(\w+)", commands)) == levels
    (isa,) = re.findall(r"^.* -c \S*/isa\.cpp.*$", commands, re.M)
    known = {name.lower() for name in re.findall(r"-DMLX_NORMS_(BASELINE|AVX\w+)", isa)}
    assert known == levels


@pytest.mark.parametrize("levels, message", [("baseline;avx3", "has avx3"), ("avx2", "baseline")])
def test_refused(levels, message, tmp_path):
    error, _ = configure(tmp_path, f"-DMLX_NORMS_CPU_LEVELS={levels}")
    assert re.search(f"MLX_NORMS_CPU_LEVELS .*{message}", error)
