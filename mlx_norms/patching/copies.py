"""Copies and pickles of patched modules have the original class, which can be found by name."""

from __future__ import annotations

import copyreg
import functools
import types

ORIGINAL = "_class_before_patch"  # of a class that a patched model's modules have


def copy_as(cls: type, scoped: type) -> None:
    """Make copies and pickles of ``scoped``, a subclass of ``cls``, as ``cls`` makes its own."""

    def __reduce_ex__(self, protocol):
        registered = copyreg.dispatch_table.get(cls)
        reduced = registered(self) if registered else cls.__reduce_ex__(self, protocol)
        return _exchanged(reduced, scoped, cls)

    def copying(method):
        @functools.wraps(method)
        def copy(self, *memo):
            twin = method(self, *memo)
            if type(twin) is scoped and twin is not self:
                object.__setattr__(twin, "__class__", cls)
            return twin

        return copy

    scoped.__reduce_ex__ = __reduce_ex__
    for name in ("__copy__", "__deepcopy__"):
        if hasattr(cls, name):
            setattr(scoped, name, copying(getattr(cls, name)))


def _exchanged(reduced: str | tuple, scoped: type, cls: type) -> str | tuple:
    """The result of ``__reduce_ex__`` with ``cls`` in place of ``scoped``."""

    def exchange(value):
        if value is scoped:
            return cls
        if isinstance(value, types.MethodType) and value.__self__ is scoped:
            return types.MethodType(value.__func__, cls)
        if type(value) is functools.partial:
            return functools.partial(
                exchange(value.func), *map(exchange, value.args), **value.keywords
            )
        return value

    is_usual = isinstance(reduced, tuple) and len(reduced) > 1 and isinstance(reduced[1], tuple)
    if not is_usual:
        return reduced
    function, arguments, *rest = reduced
    arguments = tuple(map(exchange, arguments))
    name = getattr(function, "__name__", None)
    if name in ("__newobj__", "__newobj_ex__") and cls in arguments[:1]:
        # pickle checks functions of these names against the object's current class.
        function = functools.partial(function)
    return exchange(function), arguments, *rest
