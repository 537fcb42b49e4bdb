"""Patching of one model: its modules enter the scope when they are called."""

from __future__ import annotations

import dataclasses
import functools
import itertools
import weakref
from collections.abc import Callable, Iterator

import mlx.nn

from . import replaced
from .blocks import Block, block
from .copies import ORIGINAL, copy_as
from .scope import Scope, current, entered
from .written import classes, layers

# The layers of mlx.nn that compute a norm, or call a function that may.
_CALL_NORMS = (
    mlx.nn.RMSNorm,
    mlx.nn.LayerNorm,
    mlx.nn.InstanceNorm,
    mlx.nn.GroupNorm,
    mlx.nn.BatchNorm,
    mlx.nn.Sequential,
)

# The class of each module of a model, as what object.__setattr__ is given.
_Classes = list[tuple[mlx.nn.Module, str, type]]


class _State:
    """Of a model in a block, or below all of them."""

    __slots__ = ("classes",)

    def __init__(self, classes: _Classes):
        self.classes = classes


# By id, since modules are dicts, hence unhashable: the blocks for which the functions are replaced,
# and of a model that is in blocks its states, the lowest first.
_uses: dict[int, Block] = {}
_states: dict[int, dict[_State, None]] = {}


def patch(model: mlx.nn.Module, scope: Scope) -> None:
    """Make the modules of ``model`` enter ``scope`` when called."""
    check(model)
    classes = _scoped_classes(model, scope, "patch")
    lowest, setting = _outside_of_blocks(model, classes)
    for key in [key for key, use in list(_uses.items()) if use.model() is None]:
        _uses.pop(key, None)
    key = id(model)
    before = _uses.get(key)
    use = replaced.used(scope.written)
    use.model = weakref.ref(model, use.__exit__)
    use.__enter__()
    # In one go, as Block says, what follows.
    _uses[key] = use
    lowest.classes = classes
    [*setting]
    if before is not None:
        before.close()


def unpatch(model: mlx.nn.Module) -> None:
    """Give the modules of ``model`` their original classes back."""
    check(model)
    classes = _classes(model, class_before_patch)
    lowest, setting = _outside_of_blocks(model, classes)
    use = _uses.get(id(model))
    # In one go, as Block says, what follows.
    lowest.classes = classes
    [*setting]
    if use is not None:
        use.close()


@block
def patched(model: mlx.nn.Module, scope: Scope) -> Iterator[None]:
    """Has the modules of ``model`` enter ``scope`` when called, within the ``with`` block."""
    key, state = id(model), _State(_scoped_classes(model, scope, "patched"))
    states = _states.get(key) or {_State(_classes(model, type)): None}
    lowest, *_ = states
    outer: _Classes = []
    setting, restoring = _setting(state.classes), _setting(outer)
    try:
        # In one go, as Block says, what follows, here and below.
        _states[key] = states
        states[state] = None
        [*setting]
        yield
    finally:
        # That of another thread, or of a generator, may have been entered later and still be open.
        del states[state]
        *_, last = states
        outer[:] = last.classes
        [*restoring]
        if last is lowest:
            _states.pop(key, None)


def is_patched(model: mlx.nn.Module) -> bool:
    """Whether any module of ``model`` enters a scope when called."""
    check(model)
    return any(ORIGINAL in vars(type(module)) for module in model.modules())


def check(model: mlx.nn.Module) -> None:
    """Raise a TypeError if ``model`` is none."""
    if not isinstance(model, mlx.nn.Module):
        raise TypeError(f"model must be an mlx.nn.Module but is {type(model).__name__}.")


def _classes(model: mlx.nn.Module, of: Callable[[mlx.nn.Module], type]) -> _Classes:
    return [(module, "__class__", of(module)) for module in model.modules()]


def _scoped_classes(model: mlx.nn.Module, scope: Scope, caller: str) -> _Classes:
    scoped = functools.cache(lambda cls: _scoped(cls, scope, caller))

    def of(module):
        cls = class_before_patch(module)
        return scoped(cls) if _may_call_norms(module) else cls

    return _classes(model, of)


def class_before_patch(module: mlx.nn.Module) -> type:
    """The class that the module has when no model is patched."""
    return vars(type(module)).get(ORIGINAL, type(module))


def _setting(classes: _Classes) -> Iterator[None]:
    """Gives the modules these classes, in C when it is iterated over."""
    return itertools.starmap(object.__setattr__, classes)


def _outside_of_blocks(model: mlx.nn.Module, classes: _Classes) -> tuple[_State, Iterator[None]]:
    """The state that is to get ``classes``, and what sets these now if no block decides."""
    if states := _states.get(id(model)):
        return next(iter(states)), iter(())
    return _State(classes), _setting(classes)


def _may_call_norms(module: mlx.nn.Module) -> bool:
    """False for most layers of ``mlx.nn``, so that the many calls of them stay fast."""
    if not callable(module):
        return False
    if isinstance(module, _CALL_NORMS) or not type(module).__module__.startswith("mlx.nn."):
        return True
    return bool(module.children())


def _scoped(cls: type, scope: Scope, caller: str) -> type:
    """A subclass of ``cls`` whose calls enter ``scope``; Python looks ``__call__`` up by class."""

    traced = dataclasses.replace(scope, trace=True)
    function = replaced.original_of(cls.__call__)
    norm = layers.replacement(function) if scope.written and classes.writes_norm(cls) else function

    def call(self, *args, **kwargs):
        now = cls.__call__  # of a class that may have been changed since
        return (norm if now is function else now)(self, *args, **kwargs)

    @functools.wraps(cls.__call__)
    def __call__(self, *args, **kwargs):
        around = current()
        if around in (scope, traced):  # the caller is a module of this model
            return call(self, *args, **kwargs)
        with entered(traced if around.trace else scope):
            return call(self, *args, **kwargs)

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
            f"[{caller}] model has a module of the class {cls.__module__}.{cls.__qualname__}, "
            f"which cannot be subclassed ({error}), as patching one model needs: use patch() or "
            "patched(), which need not."
        ) from error
    copy_as(cls, scoped)
    return scoped
