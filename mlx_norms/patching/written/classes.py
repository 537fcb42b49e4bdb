"""The classes of models' layers that may compute a norm in MLX's operations."""

from __future__ import annotations

import weakref
from collections.abc import Iterator

import mlx.nn

from ..copies import ORIGINAL
from . import code

_OWN = ("mlx.", "mlx_norms.")

# Whether a class's own __call__ does. A class is looked at once, however many blocks there are.
_verdicts: weakref.WeakKeyDictionary[type, bool] = weakref.WeakKeyDictionary()


def found() -> list[type]:
    """Those of the classes that there are now."""
    return list(filter(_is_found, _subclasses(mlx.nn.Module)))


def found_among(cls: type) -> list[type]:
    """Those that this class and its bases are."""
    return list(filter(_is_found, cls.__mro__))


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
