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
    found = []
    for path, module in modules.values():
        of_module = _names_of(module).copy()
        if not originals.isdisjoint(map(id, of_module.values())):  # most modules hold none
            found += [f"{path}.{n}" for n, value in of_module.items() if id(value) in originals]
    return tuple(found)
