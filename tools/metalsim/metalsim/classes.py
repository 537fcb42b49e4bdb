"""Classes and unions that the host's compilers see otherwise than Metal's."""

from __future__ import annotations

import re
from collections.abc import Iterator

from .msl.tokens import Tokens

_VECTOR = re.compile(r"(packed_)?(bool|u?char|u?short|u?int|u?long|half|bfloat|float)[234]|vec")


def members_of_classes(tokens: Tokens) -> Iterator[int]:
    """Indices of the tokens in the bodies of classes, outside of all brackets there."""
    for i in range(len(tokens)):
        if not tokens.is_word(i, "struct", "class", "union"):
            continue
        k = i
        while k < len(tokens) and tokens[k] not in ("{", ";", ",", ">", "("):
            k += 1
        if k < len(tokens) and tokens[k] == "{":
            stop = tokens.close(k)
            k += 1
            while k < stop:
                yield k
                k = tokens.skip_brackets(k) + 1


def overload_member_specializations(tokens: Tokens):
    """Explicit specializations of member functions in their class become overloads."""
    for i in list(members_of_classes(tokens)):
        opening = tokens.after(i)
        if tokens.is_word(i, "template") and tokens[opening] == "<":
            closing = tokens.after(opening)
            if tokens[closing] == ">":
                tokens.erase(i, closing + 1)


def make_unions_copyable(tokens: Tokens):
    """The shim's vectors have written-out copies, which a union with one lacks."""
    for i in range(len(tokens)):
        if not tokens.is_word(i, "union"):
            continue
        opening = tokens.after(i)
        name = tokens[opening] if tokens.is_word(opening) else ""
        opening = tokens.after(opening) if name else opening
        if tokens[opening] != "{":
            continue
        closing = tokens.close(opening)
        words = {tokens[k] for k in range(opening, closing) if tokens.is_word(k)}
        if name in words or not any(_VECTOR.fullmatch(word) for word in words):
            continue
        if not name:
            if not tokens.is_word(tokens.after(closing)):
                continue  # its members are those of the scope around it
            name = f"msl_union_{i}"
            tokens[i] = f"union {name}"
        copy = "__builtin_memcpy(static_cast<void*>(this), &other, sizeof *this); "
        tokens[opening] = (
            f"{{ {name}() = default; {name}(const {name}& other) {{ {copy}}}"
            f" {name}& operator=(const {name}& other) {{ {copy}return *this; }}"
        )
