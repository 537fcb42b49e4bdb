"""Runs the compute kernels of Metal sources on Linux, and says what they do wrong.

from metalsim import Library
lib = Library("norm.metal", check=2)
result = lib.launch("norm", {"x": x, "y": y, "n": 4096}, groups=rows, group=256, out=["y"])
print(result.faults, result.bytes)
"""

import importlib

# Imported when first asked for: builds read Metal by metalsim.msl, where there is no NumPy.
_MODULES = {
    "CompileError": "compiler",
    "Fault": "result",
    "KINDS": "result",
    "Library": "library",
    "Memory": "buffers",
    "Result": "result",
    "SourceError": "msl.tokens",
    "bfloat16": "buffers",
}
__all__ = list(_MODULES)


def __getattr__(name: str):
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f".{_MODULES[name]}", __name__), name)
