"""The extension's functions with what Python asks of one: a signature, a name, a pickle."""

from __future__ import annotations

import inspect
import re

import mlx.core as mx

from . import _ext

_NATIVE = type(_ext.mlx_version)  # of nanobind

# What an argument of an annotation may be; of any other, anything.
_TYPES = {
    "mlx.core.array": mx.array,
    "mlx.core.Dtype": mx.Dtype,
    "mlx.core.StreamOrDevice": (type(None), mx.Stream, mx.Device, mx.DeviceType),
    "mlx.core.distributed.Group": mx.distributed.Group,
    "float": (float, int),
    "int": int,
    "bool": bool,
    "None": type(None),
}


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


def explain(function, native, args: tuple, kwargs: dict) -> str | None:
    """Which argument is why the extension's function does not take a call, if that can be told."""
    op = f"[{function.__name__}]"
    try:
        given = signature(native).bind(*args, **kwargs)
    except TypeError as error:
        return f"{op} {error}."
    for name, value in given.arguments.items():
        annotation = given.signature.parameters[name].annotation
        if not _fits(value, annotation):
            wanted = " or ".join(annotation.replace("mlx.core", "mx").split(" | "))
            return f"{op} {name} must be {wanted} but is {type(value).__name__}."
    return None


def _fits(value, annotation: str) -> bool:
    if "[" in annotation:
        choices = annotation.startswith("typing.Literal[")
        return not choices or isinstance(value, str) or value is None
    return any(isinstance(value, _TYPES.get(part, object)) for part in annotation.split(" | "))
