"""Where models may write a norm: the calls of their layers, and functions named as norms."""

from __future__ import annotations

import sys
import types
import weakref
from collections.abc import Iterable, Iterator

import mlx.core as mx
import mlx.nn

from ..copies import ORIGINAL
from . import code

_OWN = ("mlx.", "mlx_norms.")

# What has it, and the attribute's name.
Place = tuple[type | types.ModuleType, str]

# The names in a class. One is looked at once, however many blocks there are.
_names: weakref.WeakKeyDictionary[type, tuple[str, ...]] = weakref.WeakKeyDictionary()
# The number of names in a module when it was looked at.
_sizes: weakref.WeakKeyDictionary[types.ModuleType, int] = weakref.WeakKeyDictionary()
# The number of modules, and the latest, when those without layers were looked for.
_modules = (0, "")


def found() -> list[Place]:
    """The places in the classes that there are now, and in modules looked at for the first time."""
    return _places(_subclasses(mlx.nn.Module), _modules_of_mlx())


def found_among(cls: type) -> list[Place]:
    """Those in this class, its bases and its module, and in modules imported since then."""
    return _places(cls.__mro__, _modules_of_mlx())


def _modules_of_mlx() -> list[str]:
    """If any was imported since the last time: the modules that have MLX by its usual name."""
    global _modules
    modules = (len(sys.modules), next(reversed(sys.modules)))
    if modules == _modules:
        return []
    _modules = modules
    # None of a class of its own: one that loads when it is first used would load here.
    return [
        path
        for path, module in sys.modules.copy().items()
        if type(module) is types.ModuleType and vars(module).get("mx") is mx
    ]


def _places(classes: Iterable[type], modules: list[str]) -> list[Place]:
    classes = list(classes)
    places: list[Place] = [(cls, name) for cls in classes for name in _names_in(cls)]
    for path in {*modules, *(cls.__module__ for cls in classes)}:
        module = sys.modules.get(path)
        if isinstance(module, types.ModuleType) and not f"{path}.".startswith(_OWN):
            places += _functions(module)
    return places


def _functions(module: types.ModuleType) -> list[Place]:
    names = vars(module)
    if _sizes.get(module) == len(names):
        return []
    _sizes[module] = len(names)
    return [(module, name) for name, value in names.copy().items() if _is_norm(value, object)]


def _is_norm(function: object, cls: type) -> bool:
    """Whether it is a function that is named as a norm and may compute one in MLX's operations."""
    return (
        isinstance(function, types.FunctionType)
        and "norm" in function.__name__.lower()
        and any(each is mx for each in function.__globals__.values())
        and code.calls_norm(function, cls)
    )


def writes_norm(cls: type) -> bool:
    """Whether the call that instances of this class have may be a norm."""
    base = next((base for base in cls.__mro__ if "__call__" in vars(base)), object)
    return "__call__" in _names_in(base)


def is_known(cls: type) -> bool:
    """Whether the class has been looked at."""
    return cls in _names


def _names_in(cls: type) -> tuple[str, ...]:
    """Those of a class's own call and methods that may compute a norm."""
    names = _names.get(cls)
    if names is None:
        is_other = issubclass(cls, mlx.nn.Module) and not f"{cls.__module__}.".startswith(_OWN)
        names = _names[cls] = _look_at(cls) if is_other and ORIGINAL not in vars(cls) else ()
    return names


def _look_at(cls: type) -> tuple[str, ...]:
    names = ["__call__"] if code.writes_norm(cls) else []
    for name, value in vars(cls).items():
        is_static = isinstance(value, staticmethod)
        function = value.__func__ if is_static else value
        if _is_norm(function, cls) and (is_static or code.ignores_self(function)):
            names.append(name)
    return tuple(names)


def _subclasses(cls: type) -> Iterator[type]:
    for subclass in type.__subclasses__(cls):
        yield subclass
        yield from _subclasses(subclass)
