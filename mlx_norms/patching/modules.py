"""Patching of one model: its modules enter the scope when they are called."""

from __future__ import annotations

import dataclasses
import functools
import itertools
import weakref
from collections.abc import Callable, Iterator

import mlx.nn

from . import replaced
from .blocks import Block
from .copies import copy_as
from .scope import Scope, current, entered

_ORIGINAL = "_class_before_patch"

# The layers of mlx.nn that compute a norm, or call a function that may.
_CALL_NORMS = (
    mlx.nn.RMSNorm,
    mlx.nn.LayerNorm,
    mlx.nn.InstanceNorm,
    mlx.nn.GroupNorm,
    mlx.nn.BatchNorm,
    mlx.nn.Sequential,
)

# For which blocks the functions are replaced. By id: modules are dicts, hence unhashable.
_uses: dict[int, Block] = {}


def patch(model: mlx.nn.Module, scope: Scope) -> None:
    """Make the modules of ``model`` enter ``scope`` when called."""
    _check(model)
    scoped = functools.cache(lambda cls: _scoped(cls, scope))
    exchanging = _exchanging(
        model, lambda module, cls: scoped(cls) if _may_call_norms(module) else cls
    )
    for key in [key for key, use in list(_uses.items()) if use.model() is None]:
        _uses.pop(key, None)
    key = id(model)
    before = _uses.get(key)
    use = replaced.used()
    use.model = weakref.ref(model, use.__exit__)
    use.__enter__()
    # In one go, as Block says, what follows.
    _uses[key] = use
    [*exchanging]
    if before is not None:
        before.close()


def unpatch(model: mlx.nn.Module) -> None:
    """Give the modules of ``model`` their original classes back."""
    _check(model)
    exchanging = _exchanging(model, lambda module, cls: cls)
    use = _uses.get(id(model))
    # In one go, as Block says, what follows.
    [*exchanging]
    if use is not None:
        use.close()


def class_before_patch(module: mlx.nn.Module) -> type:
    """The class that the module has when no model is patched."""
    return vars(type(module)).get(_ORIGINAL, type(module))


def _check(model: mlx.nn.Module) -> None:
    if not isinstance(model, mlx.nn.Module):
        raise TypeError(f"model must be an mlx.nn.Module but is {type(model).__name__}.")


def _exchanging(model: mlx.nn.Module, of: Callable) -> Iterator[None]:
    """Gives modules the class ``of(module, original class)``, in C when it is iterated over."""
    modules = model.modules()
    classes = [of(m, class_before_patch(m)) for m in modules]
    changes = [(m, "__class__", cls) for m, cls in zip(modules, classes, strict=True)]
    return itertools.starmap(object.__setattr__, changes)


def _may_call_norms(module: mlx.nn.Module) -> bool:
    """False for most layers of ``mlx.nn``, so that the many calls of them stay fast."""
    if not callable(module):
        return False
    if isinstance(module, _CALL_NORMS) or not type(module).__module__.startswith("mlx.nn."):
        return True
    return bool(module.children())


def _scoped(cls: type, scope: Scope) -> type:
    """A subclass of ``cls`` whose calls enter ``scope``; Python looks ``__call__`` up by class."""

    traced = dataclasses.replace(scope, trace=True)

    @functools.wraps(cls.__call__)
    def __call__(self, *args, **kwargs):
        around = current()
        if around in (scope, traced):  # the caller is a module of this model
            return cls.__call__(self, *args, **kwargs)
        with entered(traced if around.trace else scope):
            return cls.__call__(self, *args, **kwargs)

    members = {
        "__call__": __call__,
        "__doc__": cls.__doc__,
        "__module__": cls.__module__,
        "__qualname__": cls.__qualname__,
        _ORIGINAL: cls,
    }
    try:
        scoped = type(cls.__name__, (cls,), members)
    except Exception as error:  # of __init_subclass__ or a metaclass, which may raise anything
        raise TypeError(
            f"[patch] model has a module of the class {cls.__module__}.{cls.__qualname__}, which "
            f"cannot be subclassed ({error}), as patching one model needs: use patch() or "
            "patched(), which need not."
        ) from error
    copy_as(cls, scoped)
    return scoped
