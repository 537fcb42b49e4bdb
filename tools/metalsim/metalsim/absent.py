"""Arguments that function constants leave out must not be named.

Such an argument is not there, and what Apple's compiler makes of its name is documented nowhere,
even where the pointer is copied and never used. So each mention has to be in code that is gone once
the constants have their values: a branch that is not taken, or an operand that is not evaluated.
Code counts as gone by conditions of function constants, of `const` variables that follow from them,
and of numbers; a condition that takes in anything else may hold.
"""

from __future__ import annotations

import operator
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from .msl.declarations import QUALIFIERS, Declarations, Kernel
from .msl.tokens import Token, Tokens


def _difference(a, b):
    return a - b if a >= b else None  # of unsigned numbers it would be another one


_OPERATORS = {  # by how tightly they bind, the loosest first
    **{"|": (1, operator.or_), "^": (2, operator.xor), "&": (3, operator.and_)},
    **{"==": (4, operator.eq), "!=": (4, operator.ne)},
    **{"<": (5, operator.lt), ">": (5, operator.gt), "<=": (5, operator.le)},
    **{">=": (5, operator.ge), "<<": (6, None)},
    **{"+": (7, operator.add), "-": (7, _difference), "*": (8, operator.mul)},
    **{"/": (8, None), "%": (8, None)},
}
_UNARY = {"!": operator.not_, "-": operator.neg, "+": operator.pos, "~": operator.invert}
_ASSIGNMENTS = {f"{sign}=" for sign in "+-*/%&|^"} | {"="}
_JUMPS = ("return", "break", "continue")
_LABELS = ("case", "default")


class Mention(NamedTuple):
    """An argument that is named in code that is not gone."""

    name: str
    file: str
    line: int


class AbsentArguments:
    """Finds the mentions of absent arguments in the kernels of a source.

    Args:
        tokens: of the preprocessed source, before it is rewritten.
        declared: what it declares.
    """

    def __init__(self, tokens: Tokens, declared: Declarations):
        self._bodies = {}
        for kernel in declared.kernels.values():
            if any(p.condition for p in kernel.parameters):
                stop = tokens.close(kernel.body)
                self._bodies[kernel.name] = _copy(tokens, kernel.body, stop + 1)
        self._constants = [c.name for c in declared.constants]
        self._derived = list(_derived(tokens)) if self._bodies else []
        self._found = {}

    def mentions(self, kernel: Kernel, absent: set[str], constants: dict) -> list[Mention]:
        """The mentions of the absent parameters of a kernel, with the values of constants by name.

        Each line is there once an argument.
        """
        if not absent:
            return []
        key = (kernel.name, *sorted(absent), repr(sorted(constants.items())))
        if key not in self._found:
            walk = _Walk(self._bodies[kernel.name], self._known(constants), absent)
            walk.statement(0, True)
            self._found[key] = list(dict.fromkeys(walk.found))
        return self._found[key]

    def _known(self, constants) -> dict:
        known = {}
        for name in self._constants:
            value = constants.get(name, 0)
            value = value.item() if isinstance(value, np.generic) else value
            known[name] = value if isinstance(value, (bool, int, float)) else None
            known[f"{name} defined"] = name in constants
        for name, expression in self._derived:
            known[name] = _Walk(expression, known, ()).expression(0, len(expression), True)
        return known


def _copy(tokens, start, stop) -> list[Token]:
    """Copies of the significant tokens, which a rewrite leaves as they are."""
    found = []
    for i in tokens.significant(start, stop):
        t = tokens.all[i]
        found.append(Token(t.kind, t.text, t.file, t.line))
    return found


def _derived(tokens) -> Iterator[tuple[str, list[Token]]]:
    """The names and values of the constants at the top of the source, in order."""
    i = 0
    while i < len(tokens):
        if tokens.is_word(i, "constant"):
            equals = i
            while tokens[equals] not in ("=", ";", "{", "("):
                equals = tokens.skip_brackets(equals) + 1
            stop = equals
            while tokens[stop] not in (";", "{", "}"):
                stop = tokens.skip_brackets(stop) + 1
            if tokens[equals] == "=" and tokens[stop] == ";":
                yield tokens[tokens.before(equals)], _copy(tokens, equals + 1, stop)
            i = stop
        i = tokens.skip_brackets(i) + 1


class _Walk:
    """Goes through the statements of `code`, with what is known of the names in it."""

    def __init__(self, code: list[Token], known: dict, absent):
        self.code, self.known, self.absent = code, known, absent
        self.found: list[Mention] = []
        self.close = _brackets(code)

    def text(self, i):
        return self.code[i].text if i < len(self.code) else ""

    def statement(self, i, live) -> tuple[int, bool]:
        """Goes through the statement at i; where the next one is, and whether it is reached."""
        text = self.text(i)
        if text in _SCOPES:
            outside, self.known = self.known, dict(self.known)
            end = _SCOPES[text](self, i, live)
            self.known = outside
            return end
        if text == "do":
            i, _ = self.statement(i + 1, live)
        stop = self.until(i, len(self.code), (";",))
        if text in _LABELS:
            return self.until(i, stop, (":",)) + 1, live
        if text in _JUMPS:
            self.expression(i + 1, stop, live)
            return stop + 1, False
        self.declare(i, stop, live)
        return stop + 1, live

    def block(self, i, live):
        stop, reached = self.close[i], live
        i += 1
        while i < stop:
            live = reached if self.text(i) in _LABELS else live
            i, live = self.statement(i, live)
        return stop + 1, live

    def choice(self, i, live):
        opening = i + 2 if self.text(i + 1) == "constexpr" else i + 1
        value = self.parts(opening + 1, self.close[opening], live)
        i, goes_on = self.statement(self.close[opening] + 1, live and value is not False)
        otherwise = live and value is not True
        if self.text(i) == "else":
            i, otherwise = self.statement(i + 1, otherwise)
        return i, goes_on or otherwise

    def loop(self, i, live):
        opening = i + 1
        value = self.parts(opening + 1, self.close[opening], live)
        runs = live and (value is not False or self.text(i) == "switch")
        i, _ = self.statement(self.close[opening] + 1, runs)
        return i, live

    def parts(self, i, stop, live) -> bool | None:
        """Of what stands in brackets after a keyword; whether the condition there holds."""
        middle = self.until(i, stop, (";",))
        if middle == stop:
            return _truth(self.expression(i, stop, live))
        self.declare(i, middle, live)
        end = self.until(middle + 1, stop, (";",))
        value = _truth(self.expression(middle + 1, end, live))
        self.expression(end + 1, stop, live and value is not False)
        return value

    def declare(self, i, stop, live):
        """An expression, or declarations: a variable that is const may be known after it."""
        self.expression(i, stop, live)
        equals = self.until(i, stop, ("=",))
        words = [self.text(k) for k in range(i, equals)]
        if equals < stop:
            constant = bool(QUALIFIERS & set(words)) and self.text(equals - 2) not in ("*", "&")
            one = self.until(i, stop, (",",)) == stop
            value = self.expression(equals + 1, stop, False) if constant and one else None
            self.known[self.text(equals - 1)] = value

    def expression(self, i, stop, live):
        """The value of an expression, or None where it is not known."""
        if i >= stop:
            return None
        for signs in ((",",), _ASSIGNMENTS):
            end = self.until(i, stop, signs)
            if end < stop:
                self.expression(i, end, live)
                self.expression(end + 1, stop, live)
                return None
        question = self.until(i, stop, ("?",))
        if question < stop:
            return self.conditional(i, question, stop, live)
        for sign, decides in (("||", True), ("&&", False)):
            end = self.until(i, stop, (sign,))
            if end < stop:
                left = _truth(self.expression(i, end, live))
                right = _truth(self.expression(end + 1, stop, live and left is not decides))
                if decides in (left, right):
                    return decides
                return None if None in (left, right) else left
        return self.binary(i, stop, live)

    def conditional(self, i, question, stop, live):
        value = _truth(self.expression(i, question, live))
        depth, colon = 1, question
        while depth and colon < stop:
            colon = self.until(colon + 1, stop, ("?", ":"))
            depth += 1 if self.text(colon) == "?" else -1
        yes = self.expression(question + 1, colon, live and value is not False)
        no = self.expression(colon + 1, stop, live and value is not True)
        return None if value is None else yes if value else no

    def binary(self, i, stop, live):
        loosest, at = 99, None
        for k in self.outside(i, stop):
            level, _ = _OPERATORS.get(self.text(k), (99, None))
            if level <= loosest and level < 99 and k > i and self.is_operand(k - 1):
                loosest, at = level, k
        if at is None:
            return self.operand(i, stop, live)
        left = self.expression(i, at, live)
        right = self.expression(at + 1, stop, live)
        function = _OPERATORS[self.text(at)][1]
        return None if None in (left, right, function) else function(left, right)

    def is_operand(self, i):
        return self.code[i].kind != "sign" or self.text(i) in (")", "]", "}")

    def operand(self, i, stop, live):
        if self.text(i) in _UNARY:
            value = self.operand(i + 1, stop, live)
            return None if value is None else _UNARY[self.text(i)](value)
        if self.text(i) == "(" and self.close[i] == stop - 1:
            return self.expression(i + 1, stop - 1, live)
        if stop - i == 4 and self.text(i) == "is_function_constant_defined":
            return self.known.get(f"{self.text(i + 2)} defined")
        value = self.value(i) if stop - i == 1 else None
        for k in self.outside(i, stop):
            if k in self.close:
                self.expression(k + 1, self.close[k], live)
            elif live and self.text(k) in self.absent and self.is_variable(k):
                self.found.append(Mention(self.text(k), self.code[k].file, self.code[k].line))
        return value

    def is_variable(self, i):
        return i == 0 or self.text(i - 1) not in (".", "->", "::")

    def value(self, i):
        text = self.text(i)
        if text in ("true", "false"):
            return text == "true"
        if self.code[i].kind == "number":
            try:
                return int(text.rstrip("uUlL"), 0)
            except ValueError:
                return None
        return self.known.get(text)

    def until(self, i, stop, signs) -> int:
        """The first of these signs outside of brackets, or `stop`."""
        return next((k for k in self.outside(i, stop) if self.text(k) in signs), stop)

    def outside(self, i, stop) -> Iterator[int]:
        """The tokens outside of brackets, of which only the opening ones are there."""
        while i < stop:
            yield i
            end = self.close.get(i) or self.template_end(i, stop)
            i = (end or i) + 1

    def template_end(self, i, stop) -> int | None:
        """The end of the template arguments that begin at i, if they are some."""
        if self.text(i) != "<" or i == 0 or self.code[i - 1].kind != "word":
            return None
        depth = 0
        while i < stop and self.text(i) not in ("&&", "||", ";", "?"):
            depth += {"<": 1, ">": -1}.get(self.text(i), 0)
            if depth == 0:
                return i
            i = self.close.get(i, i) + 1
        return None


_SCOPES = {"{": _Walk.block, "if": _Walk.choice}
_SCOPES |= dict.fromkeys(("for", "while", "switch"), _Walk.loop)


def _brackets(code) -> dict[int, int]:
    close, opened = {}, []
    for i, token in enumerate(code):
        if token.kind == "sign" and token.text in ("(", "[", "{"):
            opened.append(i)
        elif token.kind == "sign" and token.text in (")", "]", "}"):
            close[opened.pop()] = i
    return close


def _truth(value) -> bool | None:
    return None if value is None else bool(value)
