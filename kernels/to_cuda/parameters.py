"""A kernel's parameters: buffers and positions become variables.

The buffers' values are passed in two structures (prelude.h), since a launch's host time grows with
the number of parameters.
"""

from __future__ import annotations

from dataclasses import dataclass

import by_value
from msl.declarations import Kernel
from msl.tokens import SourceError, Tokens

from .vectors import cuda_name

_POINTER_BYTES, _WORD_BYTES = 8, 4
_WORDS = {"int": "int({0})", "uint": "{0}", "float": "__uint_as_float({0})"}

_LINEAR_INDEX = "(threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z))"
_SIMDS = "((blockDim.x * blockDim.y * blockDim.z + 31) / 32)"
_POSITIONS = {
    "thread_index_in_simdgroup": f"{_LINEAR_INDEX} % 32",
    "thread_index_in_threadgroup": _LINEAR_INDEX,
    "simdgroup_index_in_threadgroup": f"{_LINEAR_INDEX} / 32",
    "simdgroups_per_threadgroup": _SIMDS,
    "threads_per_simdgroup": "32",
}
_VECTOR_POSITIONS = {  # by component
    "thread_position_in_grid": "blockIdx.{0} * blockDim.{0} + threadIdx.{0}",
    "thread_position_in_threadgroup": "threadIdx.{0}",
    "threadgroup_position_in_grid": "blockIdx.{0}",
    "threadgroups_per_grid": "gridDim.{0}",
    "threads_per_threadgroup": "blockDim.{0}",
}


@dataclass
class Parameters:
    """The offsets of the buffers' values among a launch's arguments, in bytes.

    Attributes:
        pointers: by buffer index.
        words: where they begin; layouts, the last of them, are a structure of their own.
        layouts: where these begin.
        end: where they end.
    """

    pointers: dict[int, int]
    words: int
    layouts: int
    end: int


def rewrite_parameters(tokens: Tokens, kernel: Kernel, flags: list[str]) -> Parameters:
    """Rewrites a kernel's parameters; returns where their values are passed.

    Args:
        flags: names of the function constants that describe its arrays' rows. In a launch there is
            space for as many layouts as they have places.

    Raises:
        SourceError: If one has no translation.
    """
    pointers, numbers, layouts, positions = {}, {}, [], []
    where = f"{kernel.file}:{kernel.line}: parameter '{{}}' of kernel '{kernel.name}'"
    for p in kernel.parameters:
        if p.position:
            positions.append(_position(p, where.format(p.name)))
        elif (variable := _pointer(p, where.format(p.name))) is not None:
            if p.index in pointers:
                raise SourceError(f"{where.format(p.name)}: its index is another's too")
            pointers[p.index] = variable
        elif (variable := _number(p)) is not None:
            numbers[p.name] = variable
        elif _is_layout(p):
            layouts.append(p.name)
        else:
            raise SourceError(f"{where.format(p.name)}: '{p.text}' has no translation")
    places = by_value.places_of(kernel)
    layouts.sort(key=places.get)
    variables = [variable.format(n) for n, variable in enumerate(pointers.values())]
    variables += [variable.format(places[name]) for name, variable in numbers.items()]
    variables += [f" const int* {name} = layouts_[{n}];" for n, name in enumerate(layouts)]
    count, most = str(len(layouts)), len(layouts)
    if by_value.LAYOUTS in layouts:
        most += len(flags) - 1
        count = f"{len(layouts) - 1} + metal::most_layouts({', '.join(flags)})"
    parameters = (
        f"const __grid_constant__ metal::Arguments<{len(pointers)}, {len(numbers)}> arguments_,"
        f" const __grid_constant__ metal::Layouts<{count}> layouts_"
    )
    _replace(tokens, kernel, parameters, "".join([*variables, *positions]))
    offsets = {index: _POINTER_BYTES * n for n, index in enumerate(pointers)}
    of_words = _POINTER_BYTES * len(pointers)
    of_layouts = of_words + _WORD_BYTES * len(numbers)
    end = of_layouts + _WORD_BYTES * by_value.LAYOUT * most
    return Parameters(offsets, of_words, of_layouts, end)


def _replace(tokens, kernel, parameters, variables):
    first, last = kernel.parameters[0], kernel.parameters[-1]
    tokens.erase(first.start, last.stop)
    tokens[first.start] = parameters + tokens[first.start]
    limit = kernel.attributes.get("max_total_threads_per_threadgroup")
    if limit:
        variables = f' static_assert(GROUP_SIZE <= {limit}, "group size");' + variables
    tokens[kernel.body] = "{" + variables


def _pointer(p, where):
    """A variable for the pointer in a buffer; None if the parameter is something else."""
    if unknown := p.attributes.keys() - {"buffer", "function_constant"}:
        raise SourceError(f"{where}: attribute [[{min(unknown)}]] has no translation")
    type, *rest = _parts(p)
    if p.address_space != "device" or rest != ["*", p.name]:
        return None
    const = "const " if "const" in p.text.split() else ""
    type = f"{const}{cuda_name(type, where)}*"
    return f" {type} {p.name} = static_cast<{type}>(arguments_.pointers[{{0}}]);"


def _number(p):
    """A variable for a scalar; None if the parameter is something else."""
    type, *rest = _parts(p)
    if p.address_space != "constant" or rest != ["&", p.name] or type not in _WORDS:
        return None
    return f" const {type} {p.name} = {_WORDS[type].format('arguments_.words[{0}]')};"


def _is_layout(p):
    return p.address_space == "constant" and _parts(p) == ["int", "*", p.name]


def _parts(p):
    return [word for word in p.text.split() if word not in ("device", "constant", "const")]


def _position(p, where):
    words = [word for word in p.text.split() if word != "const"]
    components = {"uint": 1, "ushort": 1, "uint2": 2, "uint3": 3}.get(words[0])
    if words[1:] == [p.name] and components and len(p.attributes) == 1:
        type, values = cuda_name(words[0], where), None
        if p.position in _VECTOR_POSITIONS:
            of = _VECTOR_POSITIONS[p.position]
            values = ", ".join(of.format(axis) for axis in "xyz"[:components])
        elif components == 1:
            values = _POSITIONS.get(p.position)
        if values:
            return f" const {type} {p.name} = {type}({values});"
    raise SourceError(f"{where}: position '{p.position}' as '{p.text}' has no translation")
