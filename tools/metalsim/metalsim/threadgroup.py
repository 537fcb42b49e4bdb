"""Variables in threadgroup memory."""

from __future__ import annotations

import re

from .msl.tokens import SourceError, Tokens


def rewrite_threadgroup_variables(tokens: Tokens) -> set[str]:
    """Variables in threadgroup memory become references; returns their names.

    Raises:
        SourceError: a declaration is of a form that is not known.
    """
    names = set()
    for i in range(len(tokens)):
        if not tokens.is_word(i, "threadgroup"):
            continue
        before = tokens.before(i)
        if before < 0 or tokens[before][-1:] not in (";", "{", "}", ":"):
            continue
        found = _declarators(tokens, i + 1)
        if found is None:
            continue
        type_text, variables, stop = found
        text = ""
        for n, (name, dimensions) in enumerate(variables):
            names.add(name)
            unique = f"{i}_{n}"
            text += (
                f"typedef {type_text} msl_type_{unique}{dimensions}; msl_type_{unique}& {name} ="
                f" msl::threadgroup_variable<msl_type_{unique}, struct msl_tag_{unique}>"
                f'("{name}"); '
            )
        tokens.erase(i, stop)
        tokens[i] = text.rstrip("; ")
    return names


def _declarators(tokens, start):
    """Type, (name, dimensions) of the variables declared from start, and the semicolon.

    None for a pointer or a reference. Initializers, which are zeros, are dropped: MSL lets this
    memory begin undefined.

    Raises:
        SourceError: the declaration is of another form.
    """
    groups, i = [[]], tokens.after(start - 1)
    while tokens[i] != ";":
        end = i
        if tokens[i] in ("*", "&"):
            return None
        if tokens[i] == ",":
            groups.append([])
        elif tokens[i] == "=":
            end = _initializer_end(tokens, i)
        elif tokens[i] == "alignas":
            end = tokens.close(tokens.after(i))
        elif tokens.is_word(i) or tokens[i] in ("::", "<", "["):
            if tokens[i] == "<":
                end = tokens.angle_close(i)
            end = tokens.skip_brackets(end)
            words = tokens.significant(i, end + 1)
            groups[-1].append(" ".join(tokens[k] for k in words))
        else:
            raise SourceError(
                f"{tokens.where(i)}: the declaration in threadgroup memory is not understood"
            )
        i = tokens.after(end)
    type_words, variables = [], []
    for group in groups:
        size = next((n for n, text in enumerate(group) if text[0] == "["), len(group))
        variables.append((group[size - 1], "".join(group[size:])))
        type_words = type_words or group[: size - 1]
    return " ".join(type_words), variables, i


def _initializer_end(tokens, equals) -> int:
    """The last token of the initializer, for which Apple's compiler takes zeros alone.

    Raises:
        SourceError: it has something else.
    """
    i = equals
    while tokens[tokens.after(i)] not in (",", ";"):
        i = tokens.skip_brackets(tokens.after(i))
    for k in tokens.significant(equals + 1, i + 1):
        if re.match(r"[A-Za-z_]|.*[1-9]|0x", tokens[k]):
            where = tokens.where(equals)
            raise SourceError(f"{where}: threadgroup memory cannot be initialized, but with zeros")
    return i
