"""Tokens of preprocessed C-like source, and the brackets among them."""

from __future__ import annotations

import re
from dataclasses import dataclass

_TOKEN = re.compile(
    r"""
      (?P<space>[ \t\r\n]+ | //[^\n]* | /\*.*?\*/ | ^[ \t]*\#[^\n]*)
    | (?P<string>"(?:\\.|[^"\\\n])*" | '(?:\\.|[^'\\\n])*')
    | (?P<word>[A-Za-z_]\w*)
    | (?P<number>0[xX][0-9a-fA-F]*\.?[0-9a-fA-F]*(?:[pP][-+]?\d+)?\w*
        | (?:\d+\.\d*|\.\d+|\d+)(?:[eE][-+]?\d+)?\w*)
    | (?P<sign><<= | >= | <= | == | != | && | \|\| | \+\+ | -- | -> | :: | << | [-+*/%&|^]= | .)
    """,
    re.VERBOSE | re.MULTILINE | re.DOTALL,
)
MARKER = re.compile(r'\s*#(?:\s*line)?\s+(\d+)(?:\s+"((?:\\.|[^"\\])*)")?')
_CLOSERS = {"(": ")", "[": "]", "{": "}"}


class SourceError(Exception):
    """The source cannot be understood; says where and why."""


@dataclass(slots=True)
class Token:
    """A piece of source: space, string, word, number or sign, with its place in the original."""

    kind: str
    text: str
    file: str
    line: int


class Tokens:
    """The tokens of a text, whose texts may be replaced; joined, they are the text again.

    Args:
        text: preprocessed source, with the preprocessor's line markers.
        file: its name, until a line marker gives another.

    Raises:
        SourceError: a bracket is not closed.
    """

    def __init__(self, text: str, file: str):
        self.all = list(_split(text, file))
        self._close = self._pair()

    def __len__(self):
        return len(self.all)

    def __getitem__(self, i: int) -> str:
        return self.all[i].text

    def __setitem__(self, i: int, text: str):
        self.all[i].text = text

    def kind(self, i: int) -> str:
        return self.all[i].kind

    def is_word(self, i: int, *words: str) -> bool:
        token = self.all[i]
        return token.kind == "word" and (not words or token.text in words)

    def text(self) -> str:
        return "".join(t.text for t in self.all)

    def where(self, i: int) -> str:
        return f"{self.all[i].file}:{self.all[i].line}"

    def after(self, i: int) -> int:
        """Index of the next token that is not space or erased; len(self) past the end."""
        i += 1
        while i < len(self.all) and (self.all[i].kind == "space" or not self.all[i].text):
            i += 1
        return i

    def before(self, i: int) -> int:
        """Index of the last token before i that is not space or erased; -1 before the start."""
        i -= 1
        while i >= 0 and (self.all[i].kind == "space" or not self.all[i].text):
            i -= 1
        return i

    def significant(self, start: int, stop: int) -> list[int]:
        """Indices in the range of the tokens that are neither space nor erased."""
        return [i for i in range(start, stop) if self.all[i].kind != "space" and self.all[i].text]

    def close(self, i: int) -> int:
        """Index of the bracket that closes the bracket at i."""
        return self._close[i]

    def is_attribute(self, i: int) -> bool:
        """Whether `[[` stands at i."""
        return self[i] == "[" and i + 1 < len(self) and self[i + 1] == "["

    def skip_brackets(self, i: int) -> int:
        """i, or the closing bracket where an opening one stands at i."""
        return self._close.get(i, i)

    def angle_close(self, i: int) -> int | None:
        """Index of the `>` of the template arguments that begin at i; None if they are none."""
        depth = 0
        while i < len(self):
            i = self.skip_brackets(i)
            text = self[i]
            if text == "<" and depth and self._is_less(i):
                pass
            elif text == "<":
                depth += 1
            elif text == ">":
                depth -= 1
                if depth == 0:
                    return i
            elif text in (";", "{", "}"):
                return None
            i += 1
        return None

    def _is_less(self, i: int) -> bool:
        """Whether the `<` at i compares: after a bracket or a number it opens no arguments."""
        before = self.before(i)
        return self[before] in (")", "]") or self.kind(before) == "number"

    def erase(self, start: int, stop: int):
        """Takes the tokens of a range out; their line breaks stay, so lines keep their numbers."""
        for token in self.all[start:stop]:
            if token.kind == "space":
                continue
            token.text = "\n" * token.text.count("\n")

    def _pair(self) -> dict[int, int]:
        close, stack = {}, []
        for i, token in enumerate(self.all):
            if token.kind != "sign":
                continue
            if token.text in _CLOSERS:
                stack.append(i)
            elif token.text in _CLOSERS.values():
                if not stack or _CLOSERS[self[stack[-1]]] != token.text:
                    raise SourceError(f"{self.where(i)}: '{token.text}' closes nothing")
                close[stack.pop()] = i
        if stack:
            raise SourceError(f"{self.where(stack[-1])}: '{self[stack[-1]]}' is not closed")
        return close


def _split(text: str, file: str):
    line = 1
    for match in _TOKEN.finditer(text):
        kind, piece = match.lastgroup, match.group()
        yield Token(kind, piece, file, line)
        marker = MARKER.match(piece) if kind == "space" else None
        if marker:
            line = int(marker[1]) - 1
            file = marker[2] if marker[2] is not None else file
        line += piece.count("\n")
