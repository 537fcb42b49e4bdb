"""Folds declarations that differ in nothing but address spaces, once these are erased."""

from __future__ import annotations

from .tokens import Tokens

_CLASSES = frozenset({"struct", "class", "union"})


def fold_overloads(tokens: Tokens, qualified: set[int]):
    """Erases each function or class specialisation that repeats an earlier one of its scope.

    Args:
        tokens: source whose address spaces are erased.
        qualified: where they stood; only a repetition that had some is erased.
    """
    _Folder(tokens, qualified).scope(0, len(tokens), "")


class _Folder:
    def __init__(self, tokens, qualified):
        self.tokens, self.qualified = tokens, qualified
        self.seen = set()  # (scope, signature)

    def scope(self, i, stop, path):
        """Goes through the declarations of a namespace or a class."""
        tokens, start = self.tokens, i
        while i < stop:
            text = tokens[i]
            if tokens.kind(i) == "space" or not text:
                i += 1
            elif text.startswith("{"):
                i = start = self.block(start, i, path)
            elif text.endswith(";") or (text == ":" and tokens[tokens.before(i)] in _ACCESS):
                i = start = i + 1
            elif text == "=" and not self._is_operator(i):
                while i < stop and not tokens[i].endswith(";"):
                    i = tokens.skip_brackets(i) + 1
            elif text == "<" and not self._is_operator(i):
                i = (tokens.angle_close(i) or i) + 1
            else:
                i = tokens.skip_brackets(i) + 1

    def _is_operator(self, i):
        return self.tokens.is_word(self.tokens.before(i), "operator")

    def block(self, start, brace, path) -> int:
        """Deals with the declaration from start whose block opens at `brace`; returns its end."""
        tokens, close = self.tokens, self.tokens.close(brace)
        head = self._without_template(tokens.significant(start, brace))
        words = {tokens[k] for k in head}
        opening = self._parameters(head)
        if opening is not None:
            end = tokens.close(opening)
            after = tokens.after(end)
            while tokens[after] in ("const", "noexcept"):
                after = tokens.after(after)
            self._fold(start, after, close, path)
        elif words & _CLASSES:
            if not self._fold(start, brace, close, path):
                self.scope(brace + 1, close, f"{path}{brace} ")
        elif "namespace" in words or "extern" in words:
            name = "".join(tokens[k] for k in head)
            self.scope(brace + 1, close, f"{path}{name} ")
        return close + 1

    def _without_template(self, head):
        tokens, k = self.tokens, 0
        while k < len(head) and tokens[head[k]] == "template":
            close = tokens.angle_close(head[k + 1])
            k = next((n for n, i in enumerate(head) if i > close), len(head))
        return head[k:]

    def _parameters(self, head):
        """The bracket that opens a function's parameters."""
        tokens, k = self.tokens, 0
        while k < len(head):
            i = head[k]
            if tokens.is_word(i, "operator"):
                k += 1
                if tokens[head[k]] == "(":
                    k += 1
                while tokens[head[k + 1]] != "(":
                    k += 1
                return head[k + 1]
            if tokens[i] == "<":
                end = tokens.angle_close(i) or i
            elif tokens[i] == "(" and tokens[tokens.before(i)] not in _NOT_FUNCTIONS:
                return i
            else:
                end = tokens.skip_brackets(i)
            while k < len(head) and head[k] <= end:
                k += 1
        return None

    def _fold(self, start, stop, close, path) -> bool:
        tokens = self.tokens
        signature = " ".join(tokens[k] for k in tokens.significant(start, stop))
        key = (path, signature)
        if key not in self.seen:
            self.seen.add(key)
            return False
        if not any(k in self.qualified for k in range(start, close)):
            return False
        following = tokens.after(close)
        if following < len(tokens) and tokens[following] == ";":
            tokens[following] = ""
        tokens.erase(start, close + 1)
        return True


_ACCESS = frozenset({"public", "private", "protected"})
_NOT_FUNCTIONS = frozenset({"decltype", "alignas", "__attribute__", "noexcept", "requires"})
