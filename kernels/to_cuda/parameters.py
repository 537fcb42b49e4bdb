"""A kernel's parameters: buffers stay parameters, positions become variables."""

from __future__ import annotations

from dataclasses import dataclass

from msl.declarations import Kernel
from msl.tokens import SourceError, Tokens

from .vectors import cuda_name

LAYOUT_WORDS = 6  # of a row layout: kernels/rows.h
_WORDS = {"int": 1, "uint": 1, "float": 1}

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
class Parameter:
    """What stands at a buffer index: so many 32-bit words by value, or, with 0, a pointer."""

    index: int
    words: int


def rewrite_parameters(tokens: Tokens, kernel: Kernel, constants: set[str]) -> list[Parameter]:
    """Rewrites a kernel's parameters in order of their indices; returns what they are.

    Args:
        constants: names of the function constants: a layout `x_layout` takes no room in launches
            for which `x_access` says that it is not read.

    Raises:
        SourceError: one has no translation.
    """
    buffers, positions = {}, []
    where = f"{kernel.file}:{kernel.line}: parameter '{{}}' of kernel '{kernel.name}'"
    for p in kernel.parameters:
        if p.position:
            positions.append(_position(p, where.format(p.name)))
            continue
        words, text, variable = _buffer(p, constants, where.format(p.name))
        if p.index in buffers:
            raise SourceError(f"{where.format(p.name)}: its index is another's too")
        buffers[p.index] = (Parameter(p.index, words), text)
        positions.append(variable)
    ordered = [buffers[index] for index in sorted(buffers)]
    _replace(tokens, kernel, ", ".join(text for _, text in ordered), "".join(positions))
    return [parameter for parameter, _ in ordered]


def _replace(tokens, kernel, parameters, variables):
    first, last = kernel.parameters[0], kernel.parameters[-1]
    tokens.erase(first.start, last.stop)
    tokens[first.start] = parameters + tokens[first.start]
    limit = kernel.attributes.get("max_total_threads_per_threadgroup")
    if limit:
        variables = f' static_assert(GROUP_SIZE <= {limit}, "group size");' + variables
    tokens[kernel.body] = "{" + variables


def _buffer(p, constants, where):
    """Words, text as a parameter, and a variable for the kernel's body."""
    words = [word for word in p.text.split() if word not in ("device", "constant", "const")]
    if unknown := p.attributes.keys() - {"buffer", "function_constant"}:
        raise SourceError(f"{where}: attribute [[{min(unknown)}]] has no translation")
    if p.address_space == "device" and words[1:] == ["*", p.name]:
        const = "const " if "const" in p.text.split() else ""
        return 0, f"{const}{cuda_name(words[0], where)}* {p.name}", ""
    if p.address_space == "constant" and words[1:] == ["&", p.name] and words[0] in _WORDS:
        return _WORDS[words[0]], f"const {words[0]} {p.name}", ""
    if p.address_space == "constant" and words == ["int", "*", p.name] and "layout" in p.name:
        access = p.name.replace("layout", "access")
        is_read = f"({access} & kStrided) != 0" if access in constants else "true"
        variable = f" const int* {p.name} = of_{p.name}.words;"
        return LAYOUT_WORDS, f"const metal::Layout<{is_read}> of_{p.name}", variable
    raise SourceError(f"{where}: '{p.text}' has no translation")


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
