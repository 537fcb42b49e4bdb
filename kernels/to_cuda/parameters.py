"""A kernel's parameters: buffers and positions become variables.

The buffers' values are passed in two structures (prelude.h), since a launch's host time grows with
the number of parameters.
"""

from __future__ import annotations

from dataclasses import dataclass

from msl.declarations import Kernel
from msl.tokens import SourceError, Tokens

from .vectors import cuda_name

LAYOUT_WORDS = 6  # kLayoutWords of kernels/common/rows.h
LAYOUTS = "layouts"
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
        offsets: by buffer index: pointers, then 32-bit scalars, then words, the layouts' last.
        layouts: where the words begin, which are a structure of their own.
        end: where they end.
    """

    offsets: dict[int, int]
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
    pointers, words, layouts, positions = {}, {}, {}, []
    where = f"{kernel.file}:{kernel.line}: parameter '{{}}' of kernel '{kernel.name}'"
    for p in kernel.parameters:
        if p.position:
            positions.append(_position(p, where.format(p.name)))
            continue
        if p.index in pointers | words | layouts:
            raise SourceError(f"{where.format(p.name)}: its index is another's too")
        if (variable := _pointer(p, where.format(p.name))) is not None:
            pointers[p.index] = variable
        elif (variable := _word(p)) is not None:
            words[p.index] = variable
        elif _is_layout(p):
            layouts[p.index] = p.name
        else:
            raise SourceError(f"{where.format(p.name)}: '{p.text}' has no translation")
    variables = [of[index].format(n) for of in (pointers, words) for n, index in enumerate(of)]
    layouts = dict(sorted(layouts.items(), key=lambda layout: layout[1] == LAYOUTS))
    variables += [f" const int* {name} = layouts_[{n}];" for n, name in enumerate(layouts.values())]
    count, most = str(len(layouts)), 0
    if LAYOUTS in layouts.values():
        most = len(flags)
        count = f"{len(layouts) - 1} + metal::most_layouts({', '.join(flags)})"
    parameters = (
        f"const __grid_constant__ metal::Arguments<{len(pointers)}, {len(words)}> arguments_,"
        f" const __grid_constant__ metal::Layouts<{count}> layouts_"
    )
    _replace(tokens, kernel, parameters, "".join([*variables, *positions]))
    return _places(pointers, words, layouts, most)


def _places(pointers, words, layouts, most):
    offsets, end = {}, 0
    for indices, size in ((pointers, _POINTER_BYTES), (words, _WORD_BYTES)):
        for index in indices:
            offsets[index] = end
            end += size
    begin = end
    for index, name in layouts.items():
        offsets[index] = end
        end += LAYOUT_WORDS * _WORD_BYTES * (most if name == LAYOUTS else 1)
    return Parameters(offsets, begin, end)


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
    words = _words(p)
    if p.address_space != "device" or words[1:] != ["*", p.name]:
        return None
    const = "const " if "const" in p.text.split() else ""
    type = f"{const}{cuda_name(words[0], where)}*"
    return f" {type} {p.name} = static_cast<{type}>(arguments_.pointers[{{0}}]);"


def _word(p):
    """A variable for a scalar; None if the parameter is something else."""
    words = _words(p)
    if p.address_space != "constant" or words[1:] != ["&", p.name] or words[0] not in _WORDS:
        return None
    value = _WORDS[words[0]].format("arguments_.words[{0}]")
    return f" const {words[0]} {p.name} = {value};"


def _is_layout(p):
    return p.address_space == "constant" and _words(p) == ["int", "*", p.name]


def _words(p):
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
