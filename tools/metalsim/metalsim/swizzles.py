"""Swizzles of vectors."""

from __future__ import annotations

import re

from .classes import members_of_classes
from .msl.tokens import Tokens

_SWIZZLE = re.compile(r"[xyzw]{2,4}|[rgba]{2,4}")
_ASSIGNMENTS = frozenset({"=", "+=", "-=", "*=", "/=", "%=", "&=", "|=", "^=", "<<="})


def rewrite_swizzles(tokens: Tokens) -> str:
    """Swizzles become calls; returns macros for those that are fields of the source's classes."""
    fields = _fields(tokens)
    for i in range(len(tokens)):
        if tokens.kind(i) != "word" or not _SWIZZLE.fullmatch(tokens[i]) or tokens[i] in fields:
            continue
        following = tokens[tokens.after(i)]
        if tokens[tokens.before(i)] not in (".", "->") or following == "(":
            continue
        method = "lanes" if following in _ASSIGNMENTS else "swizzle"
        tokens[i] = f"template {method}<{_components(tokens[i])}>()"
    macros = ""
    for size in (2, 3, 4) if fields else ():
        fitting = [f for f in sorted(fields) if set(f) <= set("xyzw"[:size] + "rgba"[:size])]
        members = " ".join(f"msl::Lanes<T, {_components(f)}> {f};" for f in fitting)
        macros += f"#define MSL_SWIZZLES_{size} {members}\n"
    return macros


def _components(swizzle: str) -> str:
    order = "xyzw" if swizzle[0] in "xyzw" else "rgba"
    return ", ".join(str(order.index(c)) for c in swizzle)


def _fields(tokens) -> set[str]:
    """Words that look like swizzles but are declared in a class of the source."""
    members = members_of_classes(tokens)
    return {
        tokens[k] for k in members if tokens.kind(k) == "word" and _SWIZZLE.fullmatch(tokens[k])
    }
