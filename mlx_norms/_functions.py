"""The extension's functions with what Python asks of one: a signature, a name, a pickle."""

from __future__ import annotations

import inspect
import re

from . import _ext

_NATIVE = type(_ext.mlx_version)  # of nanobind


def expose(namespace: dict[str, object]) -> None:
    """Exchange the extension's functions in a module's namespace for such functions."""
    for name, value in list(namespace.items()):
        if type(value) is _NATIVE:
            namespace[name] = _exposed(value, name, namespace["__name__"])


def _exposed(native, name: str, module: str):
    function = _ext.function(native)
    function.__name__ = function.__qualname__ = name
    function.__module__ = module
    headers, docstrings, *_ = zip(*native.__nb_signature__, strict=True)
    docstring = inspect.cleandoc("".join(text or "" for text in docstrings))
    function.__doc__ = "\n".join([*(_lines(header, name) for header in headers), "", docstring])
    return function


def _lines(header: str, name: str) -> str:
    """A function's header, with a line for each parameter."""
    parameters, _, returned = header.partition("(")[2].rpartition(") -> ")
    lines = re.split(r", (?![^\[]*\])", parameters)  # at commas outside of brackets
    return "\n".join([f"{name}(", *(f"    {line}," for line in lines), f") -> {returned}"])


def signature(native) -> inspect.Signature:
    """That of an extension's function; its annotations are texts. Called by `__signature__`."""
    scope: dict = {}
    exec(f"from __future__ import annotations\n{native.__nb_signature__[-1][0]}: ...", scope)
    (function,) = filter(inspect.isfunction, scope.values())
    return inspect.signature(function)
