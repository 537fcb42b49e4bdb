"""Address spaces, which the host's compilers do not have."""

from __future__ import annotations

from .declarations import ADDRESS_SPACES
from .tokens import Tokens


def erase_address_spaces(tokens: Tokens) -> set[int]:
    """Erases the address spaces, but keeps that `constant` is const; returns where they stood."""
    found = set()
    for i in range(len(tokens)):
        if not tokens.is_word(i, *ADDRESS_SPACES):
            continue
        found.add(i)
        if tokens[i] != "constant":
            tokens[i] = ""
            continue
        before = tokens.before(i)
        after_parameters = before >= 0 and tokens[before] == ")"
        constant_method = (
            before >= 0 and tokens[before] == "const" and (tokens[tokens.before(before)] == ")")
        )
        if after_parameters or constant_method or _has_const(tokens, i):
            tokens[i] = ""
        elif before < 0 or tokens[before][-1:] in (";", "}", "{"):
            tokens[i] = "static const" if _is_variable(tokens, i) else "const"
        else:
            tokens[i] = "const"
    return found


def _has_const(tokens, i) -> bool:
    """Whether the declaration's type around token i is const already."""
    k = tokens.before(i)
    while k >= 0 and tokens.kind(k) == "word":
        if tokens[k] in ("const", "constexpr"):
            return True
        k = tokens.before(k)
    k = tokens.after(i)
    while k < len(tokens):
        if tokens[k] == "<":
            k = tokens.angle_close(k) or k
        elif tokens[k] in ("const", "constexpr"):
            return True
        elif tokens.kind(k) != "word" and tokens[k] != "::":
            return False
        k = tokens.after(k)
    return False


def _is_variable(tokens, i) -> bool:
    """Whether the declaration at i defines an object, not a pointer or a function."""
    while tokens[i] not in (";", "=", "{", "(", "*", "&", "["):
        i += 1
    return tokens[i] in (";", "=", "{", "[")
