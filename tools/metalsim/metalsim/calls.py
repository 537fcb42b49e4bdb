"""Lets a function that waits for other threads know where it is called.

Two calls of one function are two places: threads that wait in one are not met by threads in the
other. So the function gets a last parameter, whose default is the place of the call.
"""

from __future__ import annotations

import re

from .definitions import Definition, definitions
from .msl.declarations import Declarations
from .msl.tokens import Tokens

_WORD = re.compile(r"\w+")
_WAITS = re.compile(
    r"threadgroup_barrier|simdgroup_(barrier|load|store|multiply\w*)|(__metal_)?(simd|quad)_\w+"
)


def mark_calls(tokens: Tokens, declared: Declarations):
    """Adds the parameter to the functions that wait, directly or through others."""
    functions = [d for d in definitions(tokens) if d.opening is not None]
    fixed = {_name(tokens, d) for d in functions if not _can_grow(tokens, d)}
    fixed |= set(declared.kernels)
    fixed |= {name for e in declared.entries.values() for name in _WORD.findall(e.arguments)}
    fixed |= _used_otherwise(tokens, {_name(tokens, d) for d in functions} - fixed)
    waiting = set()
    for definition in functions:
        name = _name(tokens, definition)
        if name not in fixed and _waits(tokens, definition, waiting):
            waiting.add(name)
            _grow(tokens, definition)


def _name(tokens, definition) -> str:
    return tokens[tokens.before(definition.opening)]


def _can_grow(tokens: Tokens, definition: Definition) -> bool:
    """Whether the function can have one more parameter, with a default."""
    name = tokens.before(definition.opening)
    words = [tokens[k] for k in definition.head]
    template = tokens.after(definition.start - 1)
    specializes = tokens.is_word(template, "template") and (
        tokens[tokens.after(tokens.after(template))] == ">"
    )
    after = tokens.after(tokens.close(definition.opening))
    return (
        definition.brace is not None
        and tokens.is_word(name)
        and definition.head[0] != name  # a constructor
        and not specializes
        and tokens[after] != ":"
        and not {"constexpr", "operator", ".", "~"} & set(words)
    )


def _used_otherwise(tokens, names) -> set[str]:
    """Those of the names that stand somewhere without being called."""
    found = set()
    for i in range(len(tokens)):
        if tokens.is_word(i) and tokens[i] in names:
            following = tokens.after(i)
            if following < len(tokens) and tokens[following] == "<":
                following = tokens.after(tokens.angle_close(following) or following)
            if following == len(tokens) or tokens[following] != "(":
                found.add(tokens[i])
    return found


def _waits(tokens, definition, waiting) -> bool:
    body = range(definition.brace, tokens.close(definition.brace))
    words = (tokens[k] for k in body if tokens.is_word(k))
    return any(word in waiting or _WAITS.fullmatch(word) for word in words)


def _grow(tokens, definition):
    closing = tokens.close(definition.opening)
    inside = [tokens[k] for k in tokens.significant(definition.opening + 1, closing)]
    comma = ", " if inside and inside != ["void"] else ""
    if inside == ["void"]:
        tokens.erase(definition.opening + 1, closing)
    tokens[closing] = f"{comma}const void* msl_site = __builtin_source_location())"
    tokens[definition.brace] = "{ msl::Call msl_call(msl_site);" + tokens[definition.brace][1:]
