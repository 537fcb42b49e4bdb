"""What a kernel's text refers to, by way of the functions, structures and constants it names."""

from __future__ import annotations

from .declarations import Kernel
from .tokens import Tokens


def reached(tokens: Tokens, kernel: Kernel) -> set[str]:
    """The words in a kernel's declaration and in all that they name at file scope."""
    named: dict[str, set[str]] = {}
    start_of_kernel = set()
    for start, stop in _declarations(tokens):
        words = {tokens[i] for i in range(start, stop) if tokens.kind(i) == "word"}
        if start <= kernel.body < stop:
            start_of_kernel = words
        for name in _names(tokens, start, stop):
            named.setdefault(name, set()).update(words)
    found, new = set(), start_of_kernel
    while new:
        found |= new
        new = set().union(*(named.get(word, ()) for word in new)) - found
    return found


def _declarations(tokens: Tokens):
    """First and past-the-last tokens of each declaration at file scope."""
    start = i = 0
    while i < len(tokens):
        if tokens[i] in ("(", "["):
            i = tokens.close(i)
        elif tokens[i] == "{":
            i = tokens.close(i)
            after = tokens.after(i)
            if after >= len(tokens) or tokens[after] != ";":  # a function's
                yield start, i + 1
                start = i + 1
        elif tokens[i] == ";":
            yield start, i + 1
            start = i + 1
        i += 1


def _names(tokens: Tokens, start: int, stop: int):
    """What a declaration gives a meaning: its function, its structure or its constant."""
    inside, i = [], start
    while i < stop:
        if tokens.is_attribute(i):
            i = tokens.close(i)
        elif tokens.kind(i) != "space":
            inside.append(i)
        i += 1
    for k, i in enumerate(inside[:-1]):
        following = tokens[inside[k + 1]]
        if tokens.is_word(i, "struct", "class", "enum", "using"):
            yield following
        elif tokens.kind(i) == "word" and following in ("(", "=", "[", ";"):
            yield tokens[i]
            if following == "(" and tokens[inside[0]] != "constant":
                return
        if tokens[i] == "{":
            return
