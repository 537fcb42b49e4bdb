"""Metal source to C++: tokens are replaced in place, so lines keep their numbers."""

from __future__ import annotations

from .calls import mark_calls
from .classes import make_unions_copyable, overload_member_specializations
from .constants import rewrite_constants
from .msl.declarations import Declarations, read_attributes
from .msl.literals import cpp_literal
from .msl.spaces import erase_address_spaces
from .msl.tokens import Tokens
from .overloads import fold_overloads
from .swizzles import rewrite_swizzles
from .threadgroup import rewrite_threadgroup_variables


def rewrite(
    tokens: Tokens, declared: Declarations, members_specialize: bool
) -> tuple[str, str, set[str]]:
    """Macros to be defined before the shim, the source as C++ after it, and the names of its
    variables in threadgroup memory; `tokens` is used up.

    Args:
        tokens: of the preprocessed source.
        declared: what it declares.
        members_specialize: whether the compiler takes explicit specializations of member
            functions in their class; else they become overloads.

    Raises:
        SourceError: a declaration is of a form that is not known.
    """
    for start, stop in declared.instantiations:
        tokens.erase(start, stop)
    rewrite_constants(tokens, declared)
    for kernel in declared.kernels.values():
        _rewrite_kernel(tokens, kernel)
    threadgroup_names = rewrite_threadgroup_variables(tokens)
    macros = rewrite_swizzles(tokens)
    make_unions_copyable(tokens)
    for i in range(len(tokens)):
        if tokens.kind(i) == "number":
            tokens[i] = cpp_literal(tokens[i])
        elif tokens.is_word(i, "kernel"):
            tokens[i] = ""
    _erase_attributes(tokens)
    if not members_specialize:
        overload_member_specializations(tokens)
    fold_overloads(tokens, erase_address_spaces(tokens))
    mark_calls(tokens, declared)
    return macros, tokens.text(), threadgroup_names


def _rewrite_kernel(tokens, kernel):
    """References become pointers, which the compiler may not read ahead of their use."""
    names = ""
    for p in kernel.parameters:
        if p.position is None:
            words = tokens.significant(p.start, p.stop)
            reference = next((i for i in words if tokens[i] == "&"), None)
            if reference is not None and "[" not in p.text:
                name = next(i for i in words if tokens[i] == p.name and i > reference)
                tokens[reference] = "*"
                tokens[name] = f"msl_{p.name}"
                names += f" auto& {p.name} = *msl_{p.name};"
    end = tokens.close(kernel.body)
    tokens[kernel.body] = "{" + names
    tokens[end] = "msl::end_of_kernel(); }"


def _erase_attributes(tokens):
    i = 0
    while i < len(tokens):
        if tokens.is_attribute(i) and read_attributes(tokens, i):
            close = tokens.close(i)
            tokens.erase(i, close + 1)
            i = close
        i += 1
