"""The definitions in the namespaces and classes of a source."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from .msl.tokens import Tokens

_CLASSES = frozenset({"struct", "class", "union"})
_ACCESS = frozenset({"public", "private", "protected"})
_NOT_FUNCTIONS = frozenset({"decltype", "alignas", "__attribute__", "noexcept", "requires"})


@dataclass
class Definition:
    """A function or a class; by token, it begins at `start`.

    Attributes:
        scope: what it is in, the same for all of a namespace's blocks.
        start: its first token.
        head: the significant ones before its block, without template parameters.
        opening: the bracket that opens a function's parameters; None for a class.
        brace: the one that opens its block; None for a function that is only declared.
    """

    scope: str
    start: int
    head: list[int]
    opening: int | None
    brace: int | None


def definitions(tokens: Tokens) -> Iterator[Definition]:
    """Goes through the source; what is erased on the way is left out."""
    yield from _Walk(tokens).scope(0, len(tokens), "")


class _Walk:
    def __init__(self, tokens):
        self.tokens = tokens

    def scope(self, i, stop, path):
        tokens, start = self.tokens, i
        while i < stop:
            text = tokens[i]
            if tokens.kind(i) == "space" or not text:
                i += 1
            elif text.startswith("{"):
                yield from self.block(start, i, path)
                i = start = tokens.close(i) + 1
            elif text.endswith(";"):
                head = self.without_template(tokens.significant(start, i))
                opening = self.parameters(head)
                if opening is not None:
                    yield Definition(path, start, head, opening, None)
                i = start = i + 1
            elif text == ":" and tokens[tokens.before(i)] in _ACCESS:
                i = start = i + 1
            elif text == "=" and not self.is_operator(i):
                while i < stop and not tokens[i].endswith(";"):
                    i = tokens.skip_brackets(i) + 1
                start = i
            elif text == "<" and not self.is_operator(i):
                i = (tokens.angle_close(i) or i) + 1
            else:
                i = tokens.skip_brackets(i) + 1

    def is_operator(self, i):
        return self.tokens.is_word(self.tokens.before(i), "operator")

    def block(self, start, brace, path):
        tokens = self.tokens
        head = self.without_template(tokens.significant(start, brace))
        words = {tokens[k] for k in head}
        opening = self.parameters(head)
        if opening is not None:
            yield Definition(path, start, head, opening, brace)
        elif words & _CLASSES:
            yield Definition(path, start, head, None, brace)
            yield from self.scope(brace + 1, tokens.close(brace), f"{path}{brace} ")
        elif "namespace" in words or "extern" in words:
            name = "".join(tokens[k] for k in head)
            yield from self.scope(brace + 1, tokens.close(brace), f"{path}{name} ")

    def without_template(self, head):
        tokens, k = self.tokens, 0
        while k + 1 < len(head) and tokens[head[k]] == "template":
            close = tokens.angle_close(head[k + 1])
            if close is None:
                break
            k = next((n for n, i in enumerate(head) if i > close), len(head))
        return head[k:]

    def parameters(self, head):
        tokens, k = self.tokens, 0
        while k < len(head):
            i = head[k]
            if tokens.is_word(i, "operator"):
                k += 3 if tokens[head[k + 1]] == "(" else 1
                return next((j for j in head[k:] if tokens[j] == "("), None)
            if tokens[i] == "<":
                end = tokens.angle_close(i) or i
            elif tokens[i] == "(" and tokens[tokens.before(i)] not in _NOT_FUNCTIONS:
                return i
            else:
                end = tokens.skip_brackets(i)
            while k < len(head) and head[k] <= end:
                k += 1
        return None
