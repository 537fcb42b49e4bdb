"""What of MLX is replaced while anything is patched, and by what."""

from __future__ import annotations

import functools
import itertools
import operator
import sys
import warnings
from collections.abc import Callable, Iterator

import mlx.core as mx
import mlx.nn

from .. import _ext
from .._ext import Fusion
from . import layers, scope, transforms, trees
from .blocks import block
from .scope import EXPORT, current, entered
from .transforms import Kind
from .written import classes, functions
from .written import layers as written_layers


def _fast(name: str, original: Callable) -> Callable:
    """``original``, or ours of this name with the same arguments if the scope says so."""
    return functools.wraps(original)(_ext.replacement(original, name, scope))


def _eval(original: Callable) -> Callable:
    """``mx.eval`` or ``mx.async_eval``, after a graph pass over its arguments."""

    @functools.wraps(original)
    def evaluate(*args):
        scope = current()
        if scope.projections:
            around = scope.fusion is Fusion.NOW
            _ext.fuse_at_eval(trees.arrays(args), around, around and scope.written)
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


def _module_init(original: Callable) -> Callable:
    """That of ``mlx.nn.Module``, which has the calls of classes defined later replaced."""

    @functools.wraps(original)
    def __init__(self, *args, **kwargs):
        original(self, *args, **kwargs)
        if _has_calls_replaced and not classes.is_known(type(self)):
            _add(classes.found_among(type(self)))
            [*_exchanging_calls(_replacements)]

    return __init__


# MLX can only export its own primitives, so exported functions are traced with mx.fast.
_REPLACEMENTS = [
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
    (mx, "checkpoint", functools.partial(transforms.transforming, kind=Kind.CHECKPOINTED)),
    (mlx.nn.Module, "__init__", _module_init),
    *layers.replacements(),
]

_OWNERS, _NAMES, _MAKERS = zip(*_REPLACEMENTS, strict=True)

# Each original that was found, and what replaces it.
_replacements: dict[Callable, Callable] = {}
_originals: dict[Callable, Callable] = {}

# What models may write norms in, and is replaced, too, once it is asked for, until nothing is
# patched: calls and methods of classes, and functions of modules.
_places: list[classes.Place] = []
_has_calls_replaced = False

# Owners and names of what others had put there before anything was patched.
_left: set[tuple[object, str]] = set()

_users: dict[object, None] = {}


@block
def used(calls: bool = False) -> Iterator[bool]:
    """Has the functions replaced within the block; true if they were not before.

    They are replaced if, and only if, there is such a block or a patched process. With ``calls``,
    so are the calls and functions of models that may write a norm.
    """
    global _has_calls_replaced, _left
    if calls:
        _add(classes.found())
    left = set()
    for owner, name, make in _REPLACEMENTS:
        function = getattr(owner, name)
        if function in _replacements or function in _originals:
            continue
        if not _is_ours_to_replace(owner, name, function):
            left.add((owner, name))
        else:
            replacement = make(function)
            _originals[replacement] = function
            _replacements[function] = replacement
    user, others = object(), _replaced_by_others()
    replacing, restoring = _exchanging(_replacements), _exchanging(_originals)
    replacing_calls = _exchanging_calls(_replacements)
    restoring_calls = _exchanging_calls(_originals)
    try:
        # No call and no loop, here and below: in one go, as Block says.
        is_first = not _users and not scope.process.acts
        _users[user] = None
        if is_first:
            _left = left
            [*replacing]
        if calls:
            _has_calls_replaced = True
            [*replacing_calls]
        yield is_first
    finally:
        del _users[user]
        if not _users and not scope.process.acts:
            others = [*others]
            [*restoring]
            if _has_calls_replaced:
                [*restoring_calls]
                _has_calls_replaced = False
            if others:
                _warn_of(others)


def is_used() -> bool:
    """Whether anything is patched."""
    return bool(_users) or scope.process.acts


def originals() -> list[Callable]:
    """The functions of ``mx.fast`` that are replaced now, and of evaluation if that has a pass."""
    projections = current().projections
    return [
        _originals[function]
        for owner, function, make in zip(_OWNERS, _functions(), _MAKERS, strict=True)
        if function in _originals and (owner is mx.fast or (projections and make is _eval))
    ]


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


def _add(found: list[classes.Place]) -> None:
    """Makes the replacements of these calls and functions."""
    for owner, name in found:
        original = vars(owner).get(name)
        if original is None:  # deleted since it was found
            continue
        if original not in _replacements and original not in _originals:
            replacement = _written(owner, name, original)
            _originals[replacement] = original
            _replacements[original] = replacement
        if (owner, name) not in _places:
            _places.append((owner, name))


def _written(
    owner: object, name: str, original: Callable | staticmethod
) -> Callable | staticmethod:
    """What replaces a call of layers, or a function or method that is named as a norm."""
    if isinstance(original, staticmethod):
        replacement = functions.replacement(original.__func__)
        _originals[replacement] = original.__func__
        return staticmethod(replacement)
    if name == "__call__":
        return written_layers.replacement(original)
    return functions.replacement(original, is_method=isinstance(owner, type))


def _functions() -> Iterator[Callable]:
    return map(getattr, _OWNERS, _NAMES)


# What these two return runs in C, when it is iterated over.


def _exchanging(by: dict[Callable, Callable]) -> Iterator[None]:
    """Exchanges the functions that ``by`` has."""
    return map(setattr, _OWNERS, _NAMES, map(by.get, _functions(), _functions()))


def _owners_and_names() -> Iterator[Iterator]:
    """Of those places that still are: somebody may have deleted a name."""
    owners, names = (functools.partial(map, operator.itemgetter(i), _places) for i in (0, 1))
    return (
        itertools.compress(of(), map(operator.contains, map(vars, owners()), names()))
        for of in (owners, names)
    )


def _calls() -> Iterator[Callable | staticmethod]:
    owners, names = _owners_and_names()
    return map(operator.getitem, map(vars, owners), names)


def _exchanging_calls(by: dict[Callable, Callable]) -> Iterator[None]:
    return map(setattr, *_owners_and_names(), map(by.get, _calls(), _calls()))


def _replaced_by_others() -> Iterator[tuple[object, str]]:
    """The owners and names of functions that are none of our replacements."""
    is_ours = map(_originals.__contains__, _functions())
    return itertools.compress(zip(_OWNERS, _NAMES, strict=True), map(operator.not_, is_ours))


def _warn_of(functions: list[tuple[object, str]]) -> None:
    for owner, name in functions:
        if (owner, name) in _left:
            continue
        warnings.warn(
            f"{owner.__name__}.{name} has been replaced since mlx_norms patched it, and is left as "
            "it is.",
            stacklevel=2,
        )
