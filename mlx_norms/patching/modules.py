"""Patching of one model: its modules enter the scope when they are called."""

from __future__ import annotations

import dataclasses
import functools
import weakref

import mlx.nn

from . import replaced
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

# By id: modules are dicts, hence unhashable.
_releases: dict[int, weakref.finalize] = {}


def patch(model: mlx.nn.Module, scope: Scope) -> None:
    """Make the modules of ``model`` enter ``scope`` when called."""
    unpatch(model)
    modules = [module for module in model.modules() if _may_call_norms(module)]
    classes = {cls: _scoped(cls, scope) for cls in map(type, modules)}
    for module, cls in [(module, type(module)) for module in modules]:
        object.__setattr__(module, "__class__", classes[cls])
    replaced.acquire()
    _releases[id(model)] = weakref.finalize(model, _release, id(model))


def unpatch(model: mlx.nn.Module) -> None:
    """Give the modules of ``model`` their original classes back."""
    if not isinstance(model, mlx.nn.Module):
        raise TypeError(f"model must be an mlx.nn.Module but is {type(model).__name__}.")
    for module in model.modules():
        original = vars(type(module)).get(_ORIGINAL)
        if original:
            object.__setattr__(module, "__class__", original)
    if id(model) in _releases:
        _releases[id(model)]()


def _release(model_id: int) -> None:
    del _releases[model_id]
    replaced.release()


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
