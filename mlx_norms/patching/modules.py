"""Patching of one model: its calls enter the scope, and end with a pass over what they return."""

from __future__ import annotations

import functools
import weakref
from collections.abc import Iterator

import mlx.nn

from . import replaced, transforms
from .blocks import Block
from .copies import ORIGINAL, copy_as
from .scope import Scope, current, entered

# By a model's id, since modules are dicts, hence unhashable: the block for which the functions are
# replaced.
_uses: dict[int, Block] = {}


def patch(model: mlx.nn.Module, scope: Scope) -> None:
    """Make ``model`` enter ``scope`` when called."""
    check(model)
    if not callable(model):
        raise TypeError(f"[patch] model must be callable, which {type(model).__name__} is not.")
    scoped = _scoped(class_before_patch(model), scope)
    for key in [key for key, use in list(_uses.items()) if use.model() is None]:
        _uses.pop(key, None)
    key = id(model)
    before, setting = _uses.get(key), _setting(model, scoped)
    use = replaced.used(is_last=True)
    use.model = weakref.ref(model, use.__exit__)
    use.__enter__()
    # In one go, as Block says, what follows.
    _uses[key] = use
    [*setting]
    if before is not None:
        before.close()


def unpatch(model: mlx.nn.Module) -> None:
    """Give ``model`` its original class back."""
    check(model)
    use, setting = _uses.get(id(model)), _setting(model, class_before_patch(model))
    # In one go, as Block says, what follows.
    [*setting]
    if use is not None:
        use.close()


def is_patched(model: mlx.nn.Module) -> bool:
    """Whether ``model`` or a module of it enters a scope when called."""
    check(model)
    return any(class_before_patch(module) is not type(module) for module in model.modules())


def check(model: mlx.nn.Module) -> None:
    """Raise a TypeError if ``model`` is none."""
    if not isinstance(model, mlx.nn.Module):
        raise TypeError(f"model must be an mlx.nn.Module but is {type(model).__name__}.")


def class_before_patch(module: mlx.nn.Module) -> type:
    """The class that the module has when it is not patched."""
    return vars(type(module)).get(ORIGINAL, type(module))


def _setting(model: mlx.nn.Module, cls: type) -> Iterator[None]:
    """Gives the model this class, in C when it is iterated over."""
    return map(object.__setattr__, [model], ["__class__"], [cls])


def _scoped(cls: type, scope: Scope) -> type:
    """A subclass of ``cls`` whose calls enter ``scope``; Python looks ``__call__`` up by class."""

    @functools.wraps(cls.__call__)
    def __call__(self, *args, **kwargs):
        with entered(scope):
            results = cls.__call__(self, *args, **kwargs)
            if current().fuse:  # not of an export
                results = transforms.at_end_of_call(results, (args, kwargs))
            return results

    members = {
        "__call__": __call__,
        "__doc__": cls.__doc__,
        "__module__": cls.__module__,
        "__qualname__": cls.__qualname__,
        ORIGINAL: cls,
    }
    try:
        scoped = type(cls.__name__, (cls,), members)
    except Exception as error:  # of __init_subclass__ or a metaclass, which may raise anything
        raise TypeError(
            f"[patch] model is of the class {cls.__module__}.{cls.__qualname__}, which cannot be "
            f"subclassed ({error}), as patching one model needs: use patch() or patched(), which "
            "need not."
        ) from error
    copy_as(cls, scoped)
    return scoped
