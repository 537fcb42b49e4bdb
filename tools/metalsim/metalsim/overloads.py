"""Folds declarations that differ in nothing but address spaces, once these are erased."""

from __future__ import annotations

from .definitions import definitions
from .msl.tokens import Tokens

_ACCESS = ("public", "protected", "private")


def fold_overloads(tokens: Tokens, qualified: set[int]):
    """Erases each function or class specialization that repeats an earlier one of its scope.

    Args:
        tokens: source whose address spaces are erased.
        qualified: where they stood; only a repetition that had some is erased.
    """
    _fold_defaulted(tokens, qualified)
    seen = set()
    for definition in definitions(tokens):
        if definition.brace is None:
            continue
        stop = definition.brace
        if definition.opening is not None:
            stop = tokens.after(tokens.close(definition.opening))
            while tokens[stop] in ("const", "noexcept"):
                stop = tokens.after(stop)
        words = tokens.significant(definition.start, stop)
        signature = definition.scope, " ".join(tokens[k] for k in words)
        if signature not in seen:
            seen.add(signature)
            continue
        close = tokens.close(definition.brace)
        if any(k in qualified for k in range(definition.start, close)):
            following = tokens.after(close)
            if following < len(tokens) and tokens[following] == ";":
                tokens[following] = ""
            tokens.erase(definition.start, close + 1)


def _fold_defaulted(tokens, qualified):
    """Likewise each `= default;` and `= delete;`."""
    seen, scopes, start = set(), [None], 0
    for i in range(len(tokens)):
        if tokens[i] == ";":
            texts = [tokens[k] for k in tokens.significant(start, i) if tokens[k]]
            if texts[-2:-1] == ["="] and texts[-1] in ("default", "delete"):
                signature = scopes[-1], " ".join(texts)
                if signature not in seen:
                    seen.add(signature)
                elif any(k in qualified for k in range(start, i)):
                    tokens.erase(start, i + 1)
        elif tokens[i] == "{":
            scopes.append(i)
        elif tokens[i] == "}":
            scopes.pop()
        elif not (tokens[i] == ":" and tokens.is_word(tokens.before(i), *_ACCESS)):
            continue
        start = i + 1
