"""Runs the compute kernels of Metal sources on Linux, and says what they do wrong.

from metalsim import Library
lib = Library("norm.metal", check=2)
result = lib.launch("norm", {"x": x, "y": y, "n": 4096}, groups=rows, group=256, out=["y"])
print(result.faults, result.bytes)
"""

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parents[2] / "kernels"))  # has msl, which reads MSL

from msl.tokens import SourceError  # noqa: E402

from .buffers import Memory, bfloat16  # noqa: E402
from .compiler import CompileError  # noqa: E402
from .library import Library  # noqa: E402
from .result import KINDS, Fault, Result  # noqa: E402

__all__ = [
    "KINDS",
    "CompileError",
    "Fault",
    "Library",
    "Memory",
    "Result",
    "SourceError",
    "bfloat16",
]
