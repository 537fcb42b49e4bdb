"""What a Metal source declares: kernels, their parameters, host names, function constants."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, field

from .tokens import SourceError, Tokens

ADDRESS_SPACES = frozenset({"device", "constant", "threadgroup", "thread"})
QUALIFIERS = frozenset({"constant", "const", "static", "constexpr"})

MAX_BINDINGS = 31  # of buffers, and of threadgroup memory
POSITIONS = frozenset(
    {
        "dispatch_simdgroups_per_threadgroup",
        "dispatch_threads_per_threadgroup",
        "quadgroup_index_in_simdgroup",
        "quadgroup_index_in_threadgroup",
        "quadgroups_per_threadgroup",
        "simdgroup_index_in_threadgroup",
        "simdgroups_per_threadgroup",
        "thread_execution_width",
        "thread_index_in_quadgroup",
        "thread_index_in_simdgroup",
        "thread_index_in_threadgroup",
        "thread_position_in_grid",
        "thread_position_in_threadgroup",
        "threadgroup_position_in_grid",
        "threadgroups_per_grid",
        "threads_per_grid",
        "threads_per_simdgroup",
        "threads_per_threadgroup",
    }
)

# Of a kernel's, all are numbers or all are vectors of one width (MSL 5.2.3.6).
ALIKE = frozenset(
    {
        "dispatch_threads_per_threadgroup",
        "thread_position_in_grid",
        "thread_position_in_threadgroup",
        "threadgroup_position_in_grid",
        "threadgroups_per_grid",
        "threads_per_grid",
        "threads_per_threadgroup",
    }
)

_ATTRIBUTE = re.compile(r'([A-Za-z_]\w*)(?:\(((?:"[^"]*"|[^()"])*)\))?')
_ARGUMENT = re.compile(r"(?:[^,<>]|<[^<>]*>)+")  # of a template
_DECLTYPE = re.compile(r"(?:kernel\s+)?decltype\s*\(.*\)\s*([\w:]+?)\s*(<.*>)\s*$", re.DOTALL)
_ALIAS = re.compile(r"(?:kernel\s+)?[\w:]+\s+([\w:]+?)\s*(<.*>)\s*$", re.DOTALL)  # as its type
_SIGNATURE = re.compile(r".*?([\w:]+)\s*(<[^()]*>)\s*\(", re.DOTALL)


@dataclass
class Parameter:
    """A kernel's parameter: a position, a buffer or threadgroup memory, the latter two by index."""

    name: str
    text: str
    attributes: dict[str, str]
    start: int  # its tokens
    stop: int
    address_space: str | None = None
    position: str | None = None
    index: int = -1
    condition: str | None = None  # function constant without which it is not bound

    @property
    def is_buffer(self) -> bool:
        return self.position is None and self.address_space != "threadgroup"


@dataclass
class Kernel:
    """A kernel function, which may be a template."""

    name: str
    file: str
    line: int
    parameters: list[Parameter]
    attributes: dict[str, str]
    template: list[str] | None  # names of the parameters, of one that is a template
    body: int  # its opening brace

    @property
    def is_template(self) -> bool:
        return self.template is not None


@dataclass
class FunctionConstant:
    """A `constant T name [[function_constant(index)]];`, from token start to stop."""

    name: str
    type: str
    index: str
    start: int
    stop: int


@dataclass
class Entry:
    """What a host name stands for: a kernel, with template arguments where it is a template."""

    kernel: Kernel
    arguments: str = ""

    @property
    def max_threads(self) -> int | None:
        """The kernel's limit of threads in a threadgroup, a product with template arguments."""
        limit = self.kernel.attributes.get("max_total_threads_per_threadgroup", "")
        arguments = _ARGUMENT.findall(self.arguments.strip()[1:-1])
        values = dict(zip(self.kernel.template or (), arguments))
        factors = [values.get(factor, factor).strip() for factor in limit.split("*")]
        return math.prod(map(int, factors)) if all(f.isdigit() for f in factors) else None


@dataclass
class Declarations:
    """What `declarations` finds."""

    kernels: dict[str, Kernel] = field(default_factory=dict)
    entries: dict[str, Entry] = field(default_factory=dict)
    constants: list[FunctionConstant] = field(default_factory=list)
    instantiations: list[tuple[int, int]] = field(default_factory=list)


def declarations(tokens: Tokens) -> Declarations:
    """Finds the kernels, host names and function constants of a preprocessed source.

    Raises:
        SourceError: a host name names no kernel, or a parameter is of a kind that a compute kernel
            cannot have here.
    """
    found = Declarations()
    named = []
    i = 0
    while i < len(tokens):
        if tokens.is_word(i, "template"):
            i = _template(tokens, i, found, named)
        elif tokens.is_word(i, "kernel"):
            _add_kernel(tokens, i, found)
        elif tokens.is_attribute(i):
            close = tokens.close(i)
            attributes = read_attributes(tokens, i)
            if "kernel" in attributes:
                _add_kernel(tokens, close, found)
            elif "function_constant" in attributes:
                _add_constant(tokens, i, attributes["function_constant"], found)
            i = close
        i += 1
    for host, name, arguments, where in named:
        kernel = found.kernels.get(name.split("::")[-1])
        if kernel is None:
            raise SourceError(
                f"{where}: host name '{host}' is given to '{name}', which is no kernel"
            )
        found.entries[host] = Entry(kernel, arguments)
    for kernel in found.kernels.values():
        if not kernel.is_template:
            found.entries.setdefault(kernel.attributes.get("host_name", kernel.name), Entry(kernel))
    return found


def read_attributes(tokens: Tokens, i: int) -> dict[str, str]:
    """Names and arguments in the `[[...]]` at i; strings without their quotes."""
    inside = tokens.significant(i + 2, tokens.close(i) - 1)
    text = "".join(tokens[k] for k in inside)
    return {m[1]: (m[2] or "").replace('"', "") for m in _ATTRIBUTE.finditer(text)}


def _template(tokens, i, found, named) -> int:
    """Notes an explicit instantiation; returns the last token to be passed over."""
    first = tokens.after(i)
    if tokens[first] == "<":
        close = tokens.angle_close(first)
        if close is None:
            raise SourceError(f"{tokens.where(i)}: the template's parameters are not closed")
        return close
    end = first
    while tokens[end] != ";":
        end = tokens.skip_brackets(end) + 1
    host, k = None, first
    while tokens.is_attribute(k):
        host = read_attributes(tokens, k).get("host_name", host)
        k = tokens.after(tokens.close(k))
    if host is None:
        return end
    text = " ".join(tokens[j] for j in tokens.significant(k, end)).replace(" :: ", "::")
    match = _DECLTYPE.match(text) or _ALIAS.match(text) or _SIGNATURE.match(text)
    if not match:
        raise SourceError(f"{tokens.where(i)}: the instantiation named '{host}' is not understood")
    named.append((host, match[1], match[2], tokens.where(i)))
    found.instantiations.append((i, end + 1))
    return end


def _statement_start(tokens, i) -> int:
    """First token of the declaration that token i is part of."""
    while i > 0 and tokens[i - 1] not in (";", "{", "}"):
        i -= 1
    return i


def _add_kernel(tokens, i, found):
    attributes = {}
    start = _statement_start(tokens, i)
    k = start
    while tokens[k] != "(":
        if tokens.is_attribute(k):
            attributes |= read_attributes(tokens, k)
            k = tokens.close(k)
        elif tokens[k] == "<" and tokens.is_word(tokens.before(k), "template"):
            k = tokens.angle_close(k)
        elif tokens[k] in (";", "{"):
            return
        k += 1
    close = tokens.close(k)
    name = tokens.before(k)
    while tokens[name] == "]":
        name = tokens.before(_attribute_before(tokens, name))
    body = tokens.after(close)
    while body < len(tokens) and tokens[body] not in ("{", ";"):
        if tokens.is_attribute(body):
            attributes |= read_attributes(tokens, body)
        body = tokens.after(tokens.skip_brackets(body))
    if tokens[body] == ";":
        return
    template = _template_parameters(tokens, start, i + 1)
    found.kernels[tokens[name]] = Kernel(
        name=tokens[name],
        file=tokens.all[name].file,
        line=tokens.all[name].line,
        parameters=_parameters(tokens, k, tokens[name]),
        attributes=attributes,
        template=template,
        body=body,
    )


def _template_parameters(tokens, start, stop) -> list[str] | None:
    head = tokens.significant(start, stop)
    opening = next((tokens.after(k) for k in head if tokens[k] == "template"), None)
    if opening is None:
        return None
    inside = tokens.significant(opening + 1, tokens.angle_close(opening))
    text = " ".join(tokens[k] for k in inside)
    return [declared.split("=")[0].split()[-1] for declared in text.split(",") if declared]


def _attribute_before(tokens, end) -> int:
    k = end
    while not (tokens.is_attribute(k) and tokens.close(k) >= end):
        k -= 1
    return k


def _parameters(tokens, opening, kernel) -> list[Parameter]:
    closing = tokens.close(opening)
    spans, start, i = [], opening + 1, opening + 1
    while i < closing:
        if tokens[i] == "<":
            i = tokens.angle_close(i) or i
        elif tokens[i] == ",":
            spans.append((start, i))
            start = i + 1
        i = tokens.skip_brackets(i) + 1
    spans.append((start, closing))
    parameters = [_parameter(tokens, *span, kernel) for span in spans if tokens.significant(*span)]
    for key in ("buffer", "threadgroup"):
        group = [p for p in parameters if p.position is None and p.is_buffer == (key == "buffer")]
        _number(group, key, kernel)
    _check_widths(tokens, parameters, kernel)
    return parameters


def _check_widths(tokens, parameters, kernel):
    """Metal takes these positions as numbers, or as vectors of one width."""
    first = None
    for p in parameters:
        if p.position not in ALIKE:
            continue
        width = re.search(r"\b(?:ushort|uint)([23]?)\b", p.text)
        if first is None:
            first = (p, width)
        elif width and first[1] and width[1] != first[1][1]:
            raise SourceError(
                f"{tokens.where(p.start)}: '{first[0].text}' and '{p.text}' of kernel '{kernel}'"
                " are positions of different widths"
            )


def _parameter(tokens, start, stop, kernel) -> Parameter:
    attributes, plain, i = {}, [], start
    while i < stop:
        if tokens.is_attribute(i):
            attributes |= read_attributes(tokens, i)
            i = tokens.close(i)
        elif tokens.kind(i) != "space":
            plain.append(i)
        i += 1
    texts = [tokens[k] for k in plain]
    depth, name = 0, None
    for k in plain:
        depth += (tokens[k] in ("[", "<")) - (tokens[k] in ("]", ">"))
        if tokens.kind(k) == "word" and depth == 0:
            name = tokens[k]
    position = next((a for a in attributes if a in POSITIONS), None)
    is_memory = any(t in ("*", "&", "[") for t in texts)
    if position is None and not is_memory:
        raise SourceError(
            f"{tokens.where(plain[0])}: parameter '{' '.join(texts)}' of kernel '{kernel}' is"
            " neither a buffer nor a known position"
        )
    return Parameter(
        name=name,
        text=" ".join(texts),
        attributes=attributes,
        start=start,
        stop=stop,
        address_space=next((t for t in texts if t in ADDRESS_SPACES), None),
        position=position,
        condition=attributes.get("function_constant"),
    )


def _number(parameters, key, kernel):
    """Gives indices in order to the parameters without one, past those that are taken."""
    for p in parameters:
        if key in p.attributes:
            index = p.attributes[key]
            if not index.isdigit() or int(index) >= MAX_BINDINGS:
                raise SourceError(
                    f"parameter '{p.name}' of kernel '{kernel}': {key}({index}) is not a number"
                    f" below {MAX_BINDINGS}"
                )
            p.index = int(index)
    taken = {p.index for p in parameters}
    free = 0
    for p in parameters:
        if p.index < 0:
            while free in taken:
                free += 1
            p.index = free
            taken.add(free)


def _add_constant(tokens, i, index, found):
    name = tokens.before(i)
    start = name
    while start > 0 and tokens[start - 1] not in (";", "}", "{", "(", ","):
        start -= 1
    if start > 0 and tokens[start - 1] in ("(", ","):
        return  # of a parameter
    stop = tokens.close(i)
    while tokens[stop] != ";":
        stop += 1
    words = [tokens[k] for k in tokens.significant(start, name)]
    type_text = " ".join(word for word in words if word not in QUALIFIERS)
    first = tokens.after(start - 1)
    found.constants.append(FunctionConstant(tokens[name], type_text, index, first, stop + 1))
