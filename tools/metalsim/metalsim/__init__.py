"""Runs the compute kernels of Metal sources on Linux, and says what they do wrong.

from metalsim import Library
lib = Library("norm.metal", check=2)
result = lib.launch("norm", {"x": x, "y": y, "n": 4096}, groups=rows, group=256, out=["y"])
print(result.faults, result.bytes)
"""

from .buffers import Memory, bfloat16
from .compiler import CompileError
from .library import Library
from .msl.tokens import SourceError
from .result import KINDS, Fault, Result

__all__ = [
    "CompileError",
    "Fault",
    "KINDS",
    "Library",
    "Memory",
    "Result",
    "SourceError",
    "bfloat16",
]
