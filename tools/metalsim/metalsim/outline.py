"""The outline of an MSL text: its tokens, which braces are what, which functions it defines.

It reads the text as written, before any preprocessor, so that it needs no compiler.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import NamedTuple

# Names that begin no declaration and are no operand.
KEYWORDS = set(
    "return case else do throw new delete goto if while for switch sizeof operator".split()
)

_TOKEN = re.compile(
    r"""(?P<comment>//[^\n]*|/\*.*?\*/)
    | (?P<directive>^[ \t]*\#(?:\\\n|/\*.*?\*/|[^\n])*)
    | (?P<string>"(?:\\.|[^"\\\n])*"|'(?:\\.|[^'\\\n])*')
    | (?P<number>(?:0[xX][0-9a-fA-F']+|\d[\d']*\.?\d*(?:[eE][-+]?\d+)?|\.\d+(?:[eE][-+]?\d+)?)\w*)
    | (?P<name>[A-Za-z_]\w*)
    | (?P<op>::|->|\+\+|--|[-+*/%&|^=!<>]=|&&|\|\||\.\.\.|[^\s\w])""",
    re.M | re.S | re.X,
)
_PAIRS = {"(": ")", "[": "]", "{": "}"}


class Violation(NamedTuple):
    """A line of a text that breaks `rule`."""

    line: int
    rule: str
    message: str


class Token(NamedTuple):
    """A token; `kind` is string, number, name or op."""

    kind: str
    text: str
    line: int


def tokens(text):
    """The tokens of `text` without comments and the preprocessor's directives."""
    found, line, at = [], 1, 0
    for match in _TOKEN.finditer(text):
        line += text.count("\n", at, match.start())
        at = match.start()
        if match.lastgroup not in ("comment", "directive"):
            found.append(Token(match.lastgroup, match[0], line))
    return found


def partners(code):
    """For each bracket the index of its partner: {index: index}. Unpaired ones are left out."""
    found, open_ = {}, []
    for i, token in enumerate(code):
        if token.text in _PAIRS and token.kind == "op":
            open_.append(i)
        elif token.kind == "op" and open_ and token.text == _PAIRS[code[open_[-1]].text]:
            found[open_[-1]], found[i] = i, open_[-1]
            open_.pop()
    return found


def after_angles(code, i):
    """The index after the template brackets that open at `i`; `i` itself where none do."""
    if i >= len(code) or code[i].text != "<":
        return i
    depth, j = 0, i
    while j < len(code) and code[j].text not in (";", "{", "}"):
        depth += {"<": 1, ">": -1}.get(code[j].text, 0)
        j += 1
        if depth == 0:
            return j
    return i


def split(code, separator=","):
    """`code` cut at the separators that stand outside all brackets."""
    parts, depth, angles = [[]], 0, 0
    for token in code:
        depth += (token.text in "([{") - (token.text in ")]}") if token.kind == "op" else 0
        angles = max(0, angles + (token.text == "<") - (token.text == ">"))
        if token.text == separator and depth == 0 and angles == 0:
            parts.append([])
        else:
            parts[-1].append(token)
    return [part for part in parts if part]


@dataclass(frozen=True)
class Function:
    """A function that the text defines: parameters and body are token ranges."""

    name: str
    owner: str | None
    parameters: tuple
    body: tuple
    line: int
    template: bool

    def takes(self, count):
        """Whether a call with `count` arguments can mean this function."""
        needed = sum(not any(t.text == "=" for t in part) for part in self.parameters)
        return needed <= count <= len(self.parameters)


class Outline:
    """Tokens (`code`), bracket partners, and the functions and class bodies of an MSL text.

    `declarations` are the token ranges of those outside of all namespaces and classes.
    """

    def __init__(self, text):
        self.code = tokens(text)
        self.partner = partners(self.code)
        self.functions = []
        self.declarations = []
        self._scope(0, len(self.code), None, at_top=True)

    def _scope(self, start, stop, owner, at_top=False):
        """Reads the declarations of a namespace or class body."""
        head = i = start
        while i < stop:
            text = self.code[i].text
            if text == "{":
                end = self.partner.get(i, stop)
                self._braces(head, i, end, owner)
                i = end
                # An initializer or a class is followed by the rest of its declaration.
                if i + 1 < stop and self.code[i + 1].text in (",", ";", "=", "{", ")"):
                    i += 1
                    continue
                self.declarations += [(head, min(i + 1, stop))] * at_top
                head = i + 1
            elif text in "([":
                i = self.partner.get(i, i)
            elif text == ";":
                self.declarations += [(head, i)] * at_top
                head = i + 1
            i += 1

    def _braces(self, head, open_, close, owner):
        start = head
        while start < open_ and self.code[start].text == "template":
            start = after_angles(self.code, start + 1)
        words = [t.text for t in self.code[start:open_]]
        if words[:1] == ["namespace"] or words[:1] == ["extern"]:
            self._scope(open_ + 1, close, owner, at_top=words[:1] == ["extern"])
        elif {"struct", "class", "union"} & set(words) and words[-1] != ")":
            key = next(i for i, w in enumerate(words) if w in ("struct", "class", "union"))
            names = [t.text for t in self.code[start + key + 1 : open_] if t.kind == "name"]
            self._scope(open_ + 1, close, names[0] if names else owner)
        elif "enum" not in words:
            self._function(start, open_, close, owner, template=start > head)

    def _function(self, start, open_, close, owner, template):
        """A function: the first name (or operator) with a parameter list after it."""
        i = start
        while i < open_:
            if self.code[i].text == "[":
                i = self.partner.get(i, i)
            elif self.code[i].text == "=":
                return
            elif self.code[i].text == "(":
                before = self.code[i - 1]
                if before.text not in ("decltype", "alignas", "__attribute__"):
                    break
                i = self.partner.get(i, i)
            i += 1
        else:
            return
        end = self.partner.get(i, i)
        if self.code[end + 1].text == "(":  # operator()
            i, end = end + 1, self.partner.get(end + 1, end + 1)
        if i > start + 1 and self.code[i - 2].text == "::":
            owner = self.code[i - 3].text
        parameters = tuple(tuple(part) for part in split(self.code[i + 1 : end]))
        name = self.code[i - 1].text
        self.functions.append(
            Function(name, owner, parameters, (open_, close), self.code[i - 1].line, template)
        )
