"""Loops whose bounds are constants are unrolled: they index what a thread holds in registers."""

from __future__ import annotations

import re

from msl.tokens import Tokens

_HEAD = re.compile(r"int (\w+) = \d+ ; \1 < ([^;]*) ;.*")


def unroll_loops(tokens: Tokens):
    """Marks the loops from a number to an expression of numbers and template parameters."""
    constants = _template_parameters(tokens)
    for i in range(len(tokens)):
        if tokens.is_word(i, "for"):
            opening = tokens.after(i)
            inside = tokens.significant(opening + 1, tokens.close(opening))
            head = _HEAD.match(" ".join(tokens[k] for k in inside))
            if head and constants.issuperset(re.findall(r"[A-Za-z_]\w*", head[2])):
                tokens[i] = '_Pragma("unroll") for'


def _template_parameters(tokens: Tokens) -> set[str]:
    """Names of all numbers that templates are made for."""
    names = set()
    for i in range(len(tokens)):
        opening = tokens.after(i)
        if tokens.is_word(i, "template") and tokens[opening] == "<":
            words = tokens.significant(opening, tokens.angle_close(opening))
            names |= {tokens[b] for a, b in zip(words, words[1:]) if tokens[a] == "int"}
    return names
