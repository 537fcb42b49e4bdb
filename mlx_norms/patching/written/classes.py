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

# Whether a class's own __call__ does. A class is looked at once, however many blocks there are.
_verdicts: weakref.WeakKeyDictionary[type, bool] = weakref.WeakKeyDictionary()
# The number of names in a module when it was looked at.
_sizes: weakref.WeakKeyDictionary[types.ModuleType, int] = weakref.WeakKeyDictionary()


def found() -> list[Place]:
    """The places in the classes that there are now, and in modules looked at for the first time."""
    return _places(_subclasses(mlx.nn.Module))


def found_among(cls: type) -> list[Place]:
    """Those in this class, its bases and its module."""
    return _places(cls.__mro__)


def _places(classes: Iterable[type]) -> list[Place]:
    classes = list(classes)
    places: list[Place] = [(cls, "__call__") for cls in classes if _is_found(cls)]
    for path in {cls.__module__ for cls in classes}:
        module = sys.modules.get(path)
        if isinstance(module, types.ModuleType) and not f"{path}.".startswith(_OWN):
            places += _functions(module)
    return places


def _functions(module: types.ModuleType) -> list[Place]:
    names = vars(module)
    if _sizes.get(module) == len(names):
        return []
    _sizes[module] = len(names)
    return [
        (module, name)
        for name, value in names.copy().items()
        if isinstance(value, types.FunctionType)
        and "norm" in value.__name__.lower()
        and any(each is mx for each in value.__globals__.values())
        and code.calls_norm(value, object)
    ]


def writes_norm(cls: type) -> bool:
    """Whether the call that instances of this class have may be a norm."""
    return _is_found(next((base for base in cls.__mro__ if "__call__" in vars(base)), object))


def is_known(cls: type) -> bool:
    """Whether the class has been looked at."""
    return cls in _verdicts


def _is_found(cls: type) -> bool:
    verdict = _verdicts.get(cls)
    if verdict is None:
        is_other = issubclass(cls, mlx.nn.Module) and not f"{cls.__module__}.".startswith(_OWN)
        verdict = is_other and ORIGINAL not in vars(cls) and code.writes_norm(cls)
        _verdicts[cls] = verdict
    return verdict


def _subclasses(cls: type) -> Iterator[type]:
    for subclass in type.__subclasses__(cls):
        yield subclass
        yield from _subclasses(subclass)
