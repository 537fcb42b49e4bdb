"""What of MLX is replaced while anything is patched, and by what."""

from __future__ import annotations

import functools
import itertools
import operator
import sys
import warnings
from collections.abc import Callable, Iterator

import mlx.core as mx

from .. import _ext
from . import layers, scope, transforms, trees
from .blocks import block
from .scope import EXPORT, current, entered
from .transforms import Kind


def _fast(name: str, original: Callable) -> Callable:
    """``original``, or ours of this name with the same arguments if the scope says so."""
    return functools.wraps(original)(_ext.replacement(original, name, scope))


def _reading(original: Callable) -> Callable:
    """A method that evaluates its array, after a graph pass over it."""
    return functools.wraps(original)(_ext.evaluating_method(original, scope))


def _eval(original: Callable) -> Callable:
    """``mx.eval`` or ``mx.async_eval``, after a graph pass over its arguments."""

    @functools.wraps(original)
    def evaluate(*args):
        scope = current()
        if scope.fuse or scope.projections:
            _ext.fuse_at_eval(trees.arrays(args), scope.fuse, scope.projections)
        return original(*args)

    return evaluate


def _in_stock_scope(fun: Callable) -> Callable:
    def stock(*args, **kwargs):
        with entered(EXPORT):
            return fun(*args, **kwargs)

    return stock


def _export_function(original: Callable) -> Callable:
    @functools.wraps(original)
    def export_function(file_or_callback, fun, *args, **kwargs):
        return original(file_or_callback, _in_stock_scope(fun), *args, **kwargs)

    return export_function


def _exporter(original: Callable) -> Callable:
    @functools.wraps(original)
    def exporter(file, fun, **kwargs):
        return original(file, _in_stock_scope(fun), **kwargs)

    return exporter


# MLX can only export its own primitives, so exported functions are traced with mx.fast.
_FUNCTIONS = [
    (mx.fast, "rms_norm", functools.partial(_fast, "patched_rms_norm")),
    (mx.fast, "layer_norm", functools.partial(_fast, "patched_layer_norm")),
    (mx.fast, "rope", functools.partial(_fast, "patched_rope")),
    (mx, "export_function", _export_function),
    (mx, "exporter", _exporter),
    (mx, "eval", _eval),
    (mx, "async_eval", _eval),
    (mx, "compile", transforms.compiling),
    (mx, "grad", transforms.transforming),
    (mx, "value_and_grad", transforms.transforming),
    (mx, "vjp", transforms.transforming),
    (mx, "jvp", functools.partial(transforms.transforming, kind=Kind.KEPT)),
    (mx, "vmap", functools.partial(transforms.transforming, kind=Kind.KEPT)),
    (mx, "checkpoint", transforms.checkpointing),
]

# Set by the first patch or block, and taken back by unpatch() alone: Python 3.13 slows a type for
# good after a thousand changes.
_METHODS = [
    (mx.array, "item", _reading),
    (mx.array, "tolist", _reading),
    *layers.replacements(),
]

# Each original that was found, and what replaces it.
_replacements: dict[Callable, Callable] = {}
_originals: dict[Callable, Callable] = {}

# Owners and names of what others had put there before anything was patched.
_left: set[tuple[object, str]] = set()

_users: dict[object, None] = {}


@block
def used(is_last: bool = False) -> Iterator[bool]:
    """Has the functions replaced within the block; true if they were not before.

    They are replaced if, and only if, there is such a block or a patched process; so are methods,
    which stay replaced until a block that `is_last` ends.
    """
    global _left
    left = set()
    for owner, name, make in _FUNCTIONS + _METHODS:
        function = getattr(owner, name)
        if function in _replacements or function in _originals:
            continue
        if not _is_ours_to_replace(owner, name, function):
            left.add((owner, name))
        else:
            replacement = make(function)
            _originals[replacement] = function
            _replacements[function] = replacement
    user, others = object(), _replaced_by_others(_FUNCTIONS + _METHODS * is_last)
    replacing = _exchanging(_FUNCTIONS + _METHODS, _replacements)
    restoring = _exchanging(_FUNCTIONS, _originals)
    restoring_methods = _exchanging(_METHODS, _originals)
    try:
        # No call and no loop, here and below: in one go, as Block says.
        is_first = not _users and not scope.process.acts
        _users[user] = None
        if is_first:
            _left = left
            [*replacing]
        yield is_first
    finally:
        del _users[user]
        if not _users and not scope.process.acts:
            others = [*others]
            [*restoring]
            if is_last:
                [*restoring_methods]
            if others:
                _warn_of(others)


def is_used() -> bool:
    """Whether anything is patched."""
    return bool(_users) or scope.process.acts


def originals() -> list[Callable]:
    """The norms, ropes and evaluations that are replaced now."""
    functions = [
        getattr(owner, name)
        for owner, name, make in _FUNCTIONS
        if owner is mx.fast or make is _eval
    ]
    return [_originals[function] for function in functions if function in _originals]


def left() -> dict[str, str]:
    """What others had put in place of MLX's before the patch, and what it is."""
    return {
        f"{owner.__name__}.{name}": f"it was {_described(getattr(owner, name))} before patch()"
        for owner, name in (_left if is_used() else ())
    }


def original_of(function: object) -> object:
    """What a replacement of ours stands for, or else the function."""
    try:
        return _originals.get(function, function)
    except TypeError:  # not hashable
        return function


def _is_ours_to_replace(owner: object, name: str, function: Callable) -> bool:
    """Whether a norm, a rope or a layer's call is MLX's own, and none that others put there."""
    if owner is mx.fast:
        return type(function).__module__ == "nanobind" and function.__module__ == owner.__name__
    if isinstance(owner, type) and name == "__call__":
        is_defined_there = getattr(function, "__globals__", None) is vars(
            sys.modules[owner.__module__]
        )
        return is_defined_there and not hasattr(function, "__wrapped__")
    return True


def _described(function: object) -> str:
    """Not by its attributes, which ``functools.wraps`` takes from what it wraps."""
    if code := getattr(function, "__code__", None):
        return f"{function.__globals__.get('__name__')}.{code.co_name}"
    return f"{type(function).__module__}.{type(function).__qualname__}"


# What these two return runs in C, when it is iterated over.


def _exchanging(table: list[tuple], by: dict[Callable, Callable]) -> Iterator[None]:
    """Exchanges the functions that ``by`` has, and sets no other."""
    owners, names, _ = zip(*table, strict=True)
    functions = [map(getattr, owners, names) for _ in range(2)]
    exchanges = zip(owners, names, map(by.get, functions[0]), strict=True)
    has = map(by.__contains__, functions[1])
    return itertools.starmap(setattr, itertools.compress(exchanges, has))


def _replaced_by_others(table: list[tuple]) -> Iterator[tuple[object, str]]:
    """The owners and names of functions that are none of our replacements."""
    owners, names, _ = zip(*table, strict=True)
    is_ours = map(_originals.__contains__, map(getattr, owners, names))
    return itertools.compress(zip(owners, names, strict=True), map(operator.not_, is_ours))


def _warn_of(functions: list[tuple[object, str]]) -> None:
    for owner, name in functions:
        if (owner, name) in _left:
            continue
        warnings.warn(
            f"{owner.__name__}.{name} has been replaced since mlx_norms patched it, and is left as "
            "it is.",
            stacklevel=2,
        )
