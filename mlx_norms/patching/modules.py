"""Patching of one model: its modules enter the scope when they are called."""

from __future__ import annotations

import weakref

import mlx.nn

from . import replaced
from .scope import STOCK, Scope, context

_ORIGINAL = "_class_before_patch"

_NORMS = (mlx.nn.RMSNorm, mlx.nn.LayerNorm, mlx.nn.InstanceNorm, mlx.nn.GroupNorm)

# By id: modules are dicts, hence unhashable.
_releases: dict[int, weakref.finalize] = {}


def patch(model: mlx.nn.Module, scope: Scope) -> None:
    """Let the modules of ``model`` enter ``scope`` when called."""
    unpatch(model)
    classes: dict[type, type] = {}
    for module in model.modules():
        cls = type(module)
        if _may_call_norms(cls):
            if cls not in classes:
                classes[cls] = _scoped(cls, scope)
            object.__setattr__(module, "__class__", classes[cls])
    replaced.acquire()
    _releases[id(model)] = weakref.finalize(model, _release, id(model))


def unpatch(model: mlx.nn.Module) -> None:
    """Give the modules of ``model`` the classes back that they had."""
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


def _may_call_norms(cls: type) -> bool:
    """False for the layers of ``mlx.nn`` that have no norm: most of a model, and called most."""
    return issubclass(cls, _NORMS) or not cls.__module__.startswith("mlx.nn.")


def _scoped(cls: type, scope: Scope) -> type:
    """``cls``, with calls that enter ``scope``; looked up by class, as Python looks up calls."""

    def __call__(self, *args, **kwargs):
        if context.get() in (scope, STOCK):  # of the module around it, or of an export
            return cls.__call__(self, *args, **kwargs)
        token = context.set(scope)
        try:
            return cls.__call__(self, *args, **kwargs)
        finally:
            context.reset(token)

    members = {"__call__": __call__, "__qualname__": cls.__qualname__, _ORIGINAL: cls}
    return type(cls.__name__, (cls,), members | {"__module__": cls.__module__})
