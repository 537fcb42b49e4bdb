"""Names in loaded modules that have held a function since before MLX's were replaced."""

from __future__ import annotations

import sys
import types

from . import replaced

_OWN = ("mlx", "mlx_norms")

# Not vars(), nor getattr(): a module that loads when it is first used would load here.
_names_of = vars(types.ModuleType)["__dict__"].__get__


def names() -> tuple[str, ...]:
    """Those of MLX's functions, as ``"module.rms_norm"``. Nothing of the modules runs."""
    originals = {id(function) for function in replaced.originals()}
    modules = {}  # by id: one module may be loaded under several names
    for path, module in sys.modules.copy().items():
        if path.partition(".")[0] not in _OWN and issubclass(type(module), types.ModuleType):
            modules.setdefault(id(module), (path, module))
    return tuple(
        f"{path}.{name}"
        for path, module in modules.values()
        for name, value in _names_of(module).copy().items()
        if id(value) in originals
    )
