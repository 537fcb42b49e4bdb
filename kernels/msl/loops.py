"""Loops whose bounds are constants are unrolled: they index what a thread holds in registers.

Without a pragma a compiler may leave the private arrays of a kernel in memory. A loop of which one
copy is to be kept has a condition in its head.
"""

from __future__ import annotations

import re

from .tokens import Tokens

_HEAD = re.compile(r"int (\w+) = \d+ ; \1 < ([^;]*) ;.*")
_METAL = "clang loop unroll(full)"  # as MLX's kernels have it


def unrolled(text: str, name: str) -> str:
    """A Metal text with the pragmas; its lines keep their numbers.

    Args:
        text: which need not be preprocessed, but whose brackets are in pairs all the same.
        name: of the text, for errors.

    Raises:
        SourceError: a bracket is not closed.
    """
    tokens = Tokens(text, name)
    unroll_loops(tokens, _METAL)
    return tokens.text()


def unroll_loops(tokens: Tokens, pragma: str):
    """Marks the loops from a number to an expression of numbers, the text's constants and the
    parameters of the templates around them."""
    templates = _templates(tokens)
    constants = _constants(tokens)
    for i in range(len(tokens)):
        if not tokens.is_word(i, "for"):
            continue
        opening = tokens.after(i)
        inside = tokens.significant(opening + 1, tokens.close(opening))
        head = _HEAD.match(" ".join(tokens[k] for k in inside))
        if not head:
            continue
        known = constants.union(*(names for start, stop, names in templates if start < i < stop))
        if known.issuperset(re.findall(r"[A-Za-z_]\w*", head[2])):
            tokens[i] = f'_Pragma("{pragma}") for'


def _constants(tokens: Tokens) -> set[str]:
    """The names of the text's `constant constexpr int`."""
    words = tokens.significant(0, len(tokens))
    declared = ("constant", "constexpr", "int")
    starts = zip(words, words[1:], words[2:], words[3:])
    return {tokens[name] for *of, name in starts if tuple(tokens[i] for i in of) == declared}


def _templates(tokens: Tokens) -> list[tuple[int, int, set[str]]]:
    """Where each template begins and ends, and its parameters that are numbers."""
    found = []
    for i in range(len(tokens)):
        opening = tokens.after(i)
        if not tokens.is_word(i, "template") or tokens[opening] != "<":
            continue
        close = tokens.angle_close(opening)
        words = tokens.significant(opening, close)
        names = {tokens[b] for a, b in zip(words, words[1:]) if tokens[a] == "int"}
        stop = close
        while tokens[stop] not in ("{", ";"):
            stop = tokens.skip_brackets(stop) + 1
        found.append((i, tokens.skip_brackets(stop), names))
    return found
