"""Names in loaded modules that have held a function since before MLX's were replaced."""

from __future__ import annotations

import sys
import types
from collections.abc import Callable

import mlx.core as mx

from . import replaced, transforms
from .written.code import calls_norm

_OWN = ("mlx", "mlx_norms")
_FAST = {"rms_norm", "layer_norm"}

# Not vars(), nor getattr(): a module that loads when it is first used would load here.
_names_of = vars(types.ModuleType)["__dict__"].__get__


_COMPILED = type(mx.compile(lambda: None))


def names() -> tuple[str, ...]:
    """Those of MLX's functions, as ``"module.rms_norm"``."""
    originals = {id(function) for function in replaced.originals()}
    return _names(lambda value: id(value) in originals)


def compiled() -> tuple[str, ...]:
    """Those of functions that are compiled, not by a patched ``mx.compile``, and have a norm."""
    return _names(_is_compiled_norm) if replaced.is_used() else ()


def _names(is_sought: Callable[[object], bool]) -> tuple[str, ...]:
    """Nothing of the modules runs, and none is imported."""
    modules = {}  # by id: one module may be loaded under several names
    for path, module in sys.modules.copy().items():
        if path.partition(".")[0] not in _OWN and issubclass(type(module), types.ModuleType):
            modules.setdefault(id(module), (path, module))
    return tuple(
        f"{path}.{name}"
        for path, module in modules.values()
        for name, value in _names_of(module).copy().items()
        if is_sought(value)
    )


def _is_compiled_norm(value: object) -> bool:
    if type(value) is not _COMPILED:
        return False
    code = getattr(value, "__code__", None)  # of what was compiled
    if type(code) is not types.CodeType or code is transforms.CODE:
        return False
    function = types.FunctionType(code, value.__globals__, closure=value.__closure__)
    return bool(_FAST & set(code.co_names)) or calls_norm(function, object)
