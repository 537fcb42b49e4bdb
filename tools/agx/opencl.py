"""Metal to C++ for OpenCL: one kernel, and values of its function constants."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from metalsim.compiler import find_compiler, preprocess
from msl import reach
from msl.declarations import Entry, Parameter, declarations
from msl.literals import cpp_literal
from msl.tokens import SourceError, Tokens

PRELUDE = Path(__file__).with_name("prelude.h")

_SPACES = {"device": "__global", "constant": "__constant", "threadgroup": "__local", "thread": ""}
_INDICES = {
    "simdgroup_index_in_threadgroup": "get_sub_group_id()",
    "simdgroups_per_threadgroup": "get_num_sub_groups()",
    "thread_execution_width": "32",
    "thread_index_in_simdgroup": "get_sub_group_local_id()",
    "thread_index_in_threadgroup": "get_local_linear_id()",
    "threads_per_simdgroup": "32",
}
_POSITIONS = {
    "thread_position_in_grid": "get_global_id",
    "thread_position_in_threadgroup": "get_local_id",
    "threadgroup_position_in_grid": "get_group_id",
    "threadgroups_per_grid": "get_num_groups",
    "threads_per_grid": "get_global_size",
    "threads_per_threadgroup": "get_local_size",
}
_VALUE = "VALUE_"  # before a function constant's name: the macro with its value
_VECTOR = re.compile(r"(?:float|half|u?char|u?short|u?int|u?long)[234]")


@dataclass
class OpenCL:
    """A kernel's text.

    Attributes:
        text: in which function constants are not known, unless SPECIALIZED is defined. Then their
            values are macros, and the kernel is left out.
        group: threads of a threadgroup that it is compiled for.
        constants: names of its function constants, by name and index.
    """

    text: str
    group: tuple[int, int, int]
    constants: dict[str, str]

    def macros(self, values: Mapping[str, object]) -> list[str]:
        """What defines function constants, by name or index; those not given are 0.

        Raises:
            SourceError: one is not the text's.
        """
        if unknown := sorted(values.keys() - self.constants.keys()):
            raise SourceError(f"there is no function constant '{unknown[0]}'")
        of_all = dict.fromkeys(self.constants.values(), 0)
        of_all |= {self.constants[name]: value for name, value in values.items()}
        return ["-DSPECIALIZED", *(f"-D{_VALUE}{name}={v:d}" for name, v in of_all.items())]


def translate(
    text: str,
    name: str,
    kernel: str,
    group: tuple[int, int, int] | None = None,
    exactly: bool = False,
) -> OpenCL:
    """One kernel of a Metal text.

    Args:
        text: the source.
        name: of the text, for errors.
        kernel: its host name.
        group: threads of a threadgroup; None: as many as the kernel declares as most.
        exactly: whether it is compiled for those alone. Otherwise it has to run with as many as it
            declares by max_total_threads_per_threadgroup, which leaves each fewer registers.

    Raises:
        SourceError: something in it has no translation.
    """
    tokens = Tokens(preprocess(text, name, find_compiler()), name)
    declared = declarations(tokens)
    if kernel not in declared.entries:
        raise SourceError(f"{name} has no kernel '{kernel}'")
    entry = declared.entries[kernel]
    group = _group(entry, group, exactly)
    head, begin = _head(tokens, entry, kernel, group)
    start, body = _start(tokens, entry.kernel.body), entry.kernel.body
    stop = tokens.close(body)
    for span in [*declared.instantiations, *_unused(tokens, entry)]:
        _erase(tokens, *span)
    _refuse(tokens)
    _erase(tokens, start, body)
    for c in declared.constants:
        if tokens[c.start]:
            _erase(tokens, c.start, c.stop)
            tokens[c.start] = f"FUNCTION_CONSTANT({c.type}, {c.name}, {_VALUE}{c.name});"
    _rewrite_words(tokens)
    tokens[start] = f"\n#ifndef SPECIALIZED\n{head}\n"  # before a line marker
    tokens[body] = "{" + begin
    tokens[stop] = "}\n#endif\n"
    constants = {key: c.name for c in declared.constants for key in (c.name, c.index)}
    return OpenCL(f'#include "{PRELUDE}"\n{tokens.text()}', group, constants)


def _start(tokens: Tokens, body: int) -> int:
    """The first token of a function, by that of its body."""
    while body > 0 and tokens[body - 1][-1:] not in (";", "}"):
        body -= 1
    return body


def _unused(tokens: Tokens, entry: Entry) -> list[tuple[int, int]]:
    """The functions and structures that a kernel does not come to, such as other kernels."""
    used = reach.reached(tokens, entry.kernel)
    found = []
    for start, stop in reach._declarations(tokens):
        names = set(reach._names(tokens, start, stop))
        words = {tokens[i] for i in range(start, stop)}
        erasable = tokens[stop - 1] == "}" or words & {"struct", "class"}
        if erasable and not names & used and not start <= entry.kernel.body < stop:
            found.append((start, stop))
    return found


def _erase(tokens: Tokens, start: int, stop: int) -> None:
    """With its pragmas, too."""
    for i in range(start, stop):
        if tokens[i].lstrip().startswith("#pragma"):
            tokens[i] = ""
    tokens.erase(start, stop)


def _group(entry: Entry, group, exactly: bool) -> tuple[int, int, int]:
    limit = entry.max_threads or 0
    x, y, z = group or (limit or 256, 1, 1)
    return (x, y, z) if exactly or y * z > 1 else (max(x, limit), 1, 1)


def _head(tokens: Tokens, entry: Entry, name: str, group) -> tuple[str, str]:
    """The kernel's declaration, and the variables that its body begins with."""
    kernel = entry.kernel
    bound = _template_arguments(tokens, entry)
    begin = "".join(
        f" using {p} = {a};" if is_type else f" constexpr {of} {p} = {a};"
        for p, (a, of, is_type) in bound.items()
    )
    parameters = []
    for p in kernel.parameters:
        words = [_SPACES.get(word, word) for word in p.text.split()]
        # A kernel's own types are not those of its template.
        words = [bound[w][0] if w in bound and bound[w][2] else w for w in words]
        if p.position:
            begin += _position(p)
            continue
        declared = " ".join(words)
        if "&" in words:
            type = declared[: declared.index("&")]
            parameters.append(f"{type}* __restrict reference_{p.name}")
            begin += f" {type}& {p.name} = *reference_{p.name};"
        else:
            # Metal takes a kernel's buffers not to overlap.
            parameters.append(declared.replace("*", "* __restrict") if p.is_buffer else declared)
    size = ", ".join(map(str, group))
    attributes = (
        f"__attribute__((reqd_work_group_size({size})))"
        " __attribute__((intel_reqd_sub_group_size(32)))"
    )
    return f"__kernel {attributes} void {name}({', '.join(parameters)}) ", begin


def _template_arguments(tokens: Tokens, entry: Entry) -> dict[str, tuple[str, str, bool]]:
    """Of each parameter of the kernel's template: argument, type, and whether it is a type."""
    if not entry.kernel.is_template:
        return {}
    start = _start(tokens, entry.kernel.body)
    opening = next(
        tokens.after(i) for i in range(start, entry.kernel.body) if tokens.is_word(i, "template")
    )
    words = tokens.significant(opening + 1, tokens.angle_close(opening))
    kinds = " ".join(tokens[i] for i in words).split(" , ")
    arguments = entry.arguments.strip()[1:-1].split(",")
    if len(arguments) != len(kinds):
        raise SourceError(f"kernel '{entry.kernel.name}': template arguments by default")
    found = {}
    for kind, argument in zip(kinds, arguments):
        *type, name = kind.split(" = ")[0].split()
        found[name] = argument.strip(), " ".join(type), type[-1] in ("typename", "class")
    return found


def _position(p: Parameter) -> str:
    type = next(word for word in p.text.split() if word not in ("const", p.name))
    if p.position in _INDICES:
        return f" const {type} {p.name} = {_INDICES[p.position]};"
    if p.position not in _POSITIONS:
        raise SourceError(f"parameter '{p.name}': [[{p.position}]] has no translation")
    scalar = type.rstrip("23")
    width = int(type[len(scalar) :] or 1)
    axes = ", ".join(f"({scalar}){_POSITIONS[p.position]}({i})" for i in range(width))
    return f" const {type} {p.name} = ({type})({axes});"


def _refuse(tokens: Tokens) -> None:
    """What would be compiled as something else, or what OpenCL has not."""
    for i in range(len(tokens)):
        if tokens.kind(i) == "word" and re.match(r"simdgroup_(?:\w+8x8|matrix)", tokens[i]):
            raise SourceError(f"{tokens.where(i)}: simdgroup matrices have no translation")
        if tokens.is_word(i) and re.fullmatch(r"bfloat[234]?", tokens[i]):
            raise SourceError(f"{tokens.where(i)}: bfloat has no translation")


def _rewrite_words(tokens: Tokens) -> None:
    depth = 0
    for i in range(len(tokens)):
        word = tokens[i]
        if word in ("{", "}"):
            depth += 1 if word == "{" else -1
        elif tokens.kind(i) == "number":
            tokens[i] = cpp_literal(word)
        elif tokens.kind(i) != "word":
            continue
        elif word == "constant" and depth == 0 and _is_variable(tokens, i):
            _rewrite_variable(tokens, i)
        elif word in _SPACES:
            tokens[i] = _SPACES[word]
        elif word == "inline":
            tokens[i] = "INLINE"
        elif _VECTOR.fullmatch(word) and tokens[tokens.after(i)] == "(":
            tokens[i] = f"make_{word}"


def _is_variable(tokens: Tokens, i: int) -> bool:
    """Whether a value is given at i, which is not yet said to be known to the compiler."""
    while tokens[i] not in ("=", ";", "(", ")", ",", "{", "constexpr"):
        i = tokens.after(i)
    return tokens[i] == "="


def _rewrite_variable(tokens: Tokens, i: int) -> None:
    """Its value may be of function constants."""
    equals, stop = (next(k for k in range(i, len(tokens)) if tokens[k] == sign) for sign in "=;")
    *type, name = (tokens[k] for k in tokens.significant(i + 1, equals))
    tokens.erase(i, equals + 1)
    tokens[i] = f"FUNCTION_CONSTANT({' '.join(type)}, {name},"
    tokens[stop] = ");"
