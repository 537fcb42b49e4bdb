"""Function constants, and the constants that depend on them."""

from __future__ import annotations

from .msl.declarations import QUALIFIERS, Declarations
from .msl.tokens import Tokens


def rewrite_constants(tokens: Tokens, declared: Declarations):
    """Function constants, and those computed from them, become variables that a launch sets."""
    derived = _derived(tokens, declared)
    for i in range(len(tokens)):
        if tokens.is_word(i, "is_function_constant_defined"):
            opening = tokens.after(i)
            name = tokens[tokens.before(tokens.close(opening))]
            tokens.erase(i, tokens.close(opening) + 1)
            tokens[i] = f"msl_constant_{name}.defined"
    for c in declared.constants:
        tokens.erase(c.start, c.stop)
        tokens[c.start] = (
            f"static {c.type} {c.name}; static msl::FunctionConstant<{c.type}>"
            f' msl_constant_{c.name}("{c.name}", {c.index}, {c.name});'
        )
    for start, equals, stop in derived:
        name = tokens[tokens.before(equals)]
        kept = [k for k in tokens.significant(start, equals) if tokens[k] not in QUALIFIERS]
        head = " ".join(tokens[k] for k in kept)
        tokens.erase(start, equals + 1)
        tokens[start] = f"static {head}; static msl::Derived msl_derived_{name}([] {{ {name} ="
        tokens[stop] = "; });"


def _derived(tokens, declared):
    """(first token, equals sign, semicolon) of the constants that depend on function constants."""
    known = {c.name for c in declared.constants}
    found, i = [], 0
    if not known:
        return found
    while i < len(tokens):
        if tokens[i] == "{" and not tokens.is_word(_word_of_namespace(tokens, i), "namespace"):
            i = tokens.close(i)
        elif tokens.is_word(i, "constant"):
            stop = i
            while tokens[stop] not in (";", "{", ")"):
                stop = tokens.skip_brackets(stop) + 1
            words = tokens.significant(i, stop)
            equals = next((k for k in words if tokens[k] == "="), None)
            if tokens[stop] == ";" and equals and known & {tokens[k] for k in words if k > equals}:
                known.add(tokens[tokens.before(equals)])
                start = i
                while tokens[tokens.before(start)] in QUALIFIERS:
                    start = tokens.before(start)
                found.append((start, equals, stop))
            i = stop
        i += 1
    return found


def _word_of_namespace(tokens, brace):
    """The word before the name of a namespace, or before its brace where it has no name."""
    i = tokens.before(brace)
    while i > 0 and (tokens.is_word(i) or tokens[i] == "::") and tokens[i] != "namespace":
        i = tokens.before(i)
    return max(i, 0)
