"""The declarations of a library: its kernels' parameters and its function constants."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache
from typing import NamedTuple

from metalsim.outline import Outline

_DERIVED = re.compile(r"^[ \t]*constant\b[^;=()]*?(\w+)\s*=([^;]*);", re.M)
_INTEGERS = {1: "char", 2: "short", 4: "int"}
_NAME = re.compile(r"[A-Za-z_]\w*")
_OPTIONAL = re.compile(r"is_function_constant_defined\s*\(\s*(\w+)\s*\)")


class Constant(NamedTuple):
    """A function constant: its name and its type in MSL."""

    name: str
    type: str


@dataclass(frozen=True)
class Parameter:
    """A buffer or threadgroup memory of a kernel.

    Attributes:
        name, index: As in the kernel.
        space: "device", "constant" or "threadgroup".
        const: Whether the kernel can only read it.
        pointer: Whether it may be an array; otherwise it is a reference to one value.
        type, size, alignment: The name of the element's type, and its bytes.
    """

    name: str
    index: int
    space: str
    const: bool
    pointer: bool
    type: str
    size: int
    alignment: int


class Declared:
    """The declarations in `text`, from which `library` was compiled."""

    def __init__(self, library, text: str):
        self._library = library
        kernels = {entry.kernel.name for entry in library._entries.values()}
        self._mentions = Mentions(text, kernels)
        self._bound: dict[object, set[str]] = {}

    @cache
    def parameters(self, kernel: str) -> list[Parameter]:
        """The buffers and threadgroup memory of a kernel."""
        types = self._library._image(kernel).types(kernel)
        parameters = self._library._entries[kernel].kernel.parameters
        return [_parameter(p, types[i]) for i, p in enumerate(parameters) if not p.position]

    def bound(self, kernel: str, constants: dict[str, object]) -> set[str]:
        """Names of the parameters that exist in a kernel with these function constants."""
        key = kernel, *constants.items()
        if key not in self._bound:
            self._bound[key] = self._library.bound(kernel, constants)
        return self._bound[key]

    @cache
    def constants(self, kernel: str) -> dict[int, Constant]:
        """The function constants, by index, that are visible to a kernel."""
        records = self._library._image(kernel)._constants
        return {r.index: Constant(r.name.decode(), _scalar_name(r.type)) for r in records}

    @cache
    def needed_constants(self, kernel: str) -> set[str]:
        """Names of the function constants that Metal needs to make the kernel."""
        names = {constant.name for constant in self.constants(kernel).values()}
        return names & self.mentioned(kernel)

    def mentioned(self, kernel: str) -> set[str]:
        """The names that occur in a kernel and in what it calls."""
        return self._mentions.of(self._library._entries[kernel].kernel.name)

    def max_threads(self, kernel: str) -> int | None:
        """A kernel's max_total_threads_per_threadgroup."""
        return self._library.max_threads(kernel)


class Mentions:
    """The names that functions mention; a kernel's is a variable there: nothing calls a kernel."""

    def __init__(self, text: str, kernels: set[str]):
        self._kernels = kernels
        self._optional = set(_OPTIONAL.findall(text))
        self._names = {name: set(_NAME.findall(value)) for name, value in _DERIVED.findall(text)}
        outline = Outline(text)
        for function in outline.functions:
            start, stop = function.body
            tokens = [*(t for p in function.parameters for t in p), *outline.code[start:stop]]
            names = self._names.setdefault(function.name, set())
            names |= {token.text for token in tokens if token.kind == "name"}

    def of(self, function: str) -> set[str]:
        """All names in a function and in everything that it names, except those that the text tests
        with is_function_constant_defined().
        """
        seen, todo = set(), [function]
        while todo:
            name = todo.pop()
            if name not in seen and (name == function or name not in self._kernels):
                seen.add(name)
                todo += self._names.get(name, ())
        return seen - self._optional


def _scalar_name(record) -> str:
    """The MSL name of a function constant's type."""
    kind, size = record.kind.decode(), record.bytes
    if kind == "f":
        return {2: "half", 4: "float"}[size]
    return "bool" if kind == "b" else ("u" if kind == "u" else "") + _INTEGERS[size]


def _parameter(parameter, record) -> Parameter:
    words = re.findall(r"[\w:]+|[*&\[<>]", parameter.text)
    skipped = ("device", "constant", "threadgroup", "const", "volatile", "struct")
    type = next(word for word in words if word not in skipped)
    packed = type.startswith("packed_")
    components = 4 if record.components == 3 and not packed else record.components
    size = record.bytes * components
    # The library does not give a struct's alignment: assume the largest that its size allows.
    alignment = record.bytes if packed else size if record.kind != b"V" else min(4, size & -size)
    return Parameter(
        name=parameter.name,
        index=parameter.index,
        space=parameter.address_space,
        const=parameter.address_space == "constant" or record.constant,
        pointer="&" not in words,
        type=type,
        size=size,
        alignment=alignment,
    )
