"""Operators: each plants one kind of defect wherever a text has a place for it."""

import re
from collections import Counter
from collections.abc import Callable, Iterator
from typing import NamedTuple

from .source import Source


class Edit(NamedTuple):
    """The tokens `first` to `last` become `new`."""

    first: int
    last: int
    new: str


OPERATORS: dict[str, Callable[[Source], Iterator[Edit]]] = {}


def operator(find: Callable[[Source], Iterator[Edit]]):
    OPERATORS[find.__name__.replace("_", " ")] = find
    return find


BARRIERS = ("threadgroup_barrier", "simdgroup_barrier")
# Calls that only say what is wrong or how fast, and what has no value to leave out.
_KEPT = re.compile(r"check_|reserve|throw|static_assert|using|prefetch|sort|unpoison|assert")
_CONTROL = {"return", "if", "for", "while", "else", "do", "switch", "case", "break", "continue"}
_CONTROL |= {"throw", "using", "static_assert", "default", "goto", "delete", "typedef", "struct"}
_ASSIGN = {"=", "+=", "-=", "*=", "/=", "|=", "&="}
# Functions whose result could be taken for their first argument.
_WRAPPERS = {"round_to", "clamp_half", "finite_or_nan", "rows_sum", "columns_sum", "lanes_sum"}
_WRAPPERS |= {"simds_sum", "simd_any", "fabs", "as_input", "sum_over_group", "padded"}
# What holds of these saves work, and is right without.
_SPARES = re.compile(
    r"(columns_|tiles_|rung_)?(whole|aligned)(_tiles)?|no_tail|fetch_next|hold_weight"
)


@operator
def no_barrier(s: Source):
    """What threads share is read before it is written, or written before it is read."""
    for i in s.find(*BARRIERS):
        yield Edit(i, s.close[i + 1] + 1, "")


def _conditions(s: Source) -> Iterator[tuple[int, int]]:
    for i in s.find("if"):
        if s.words[i + 1] == "(":
            yield i + 2, s.close[i + 1] - 1


@operator
def never(s: Source):
    """A case that is not told apart: a tail, a rounding, an option."""
    for first, last in _conditions(s):
        if not _SPARES.fullmatch(s.of(first, last)):
            yield Edit(first, last, "false")


@operator
def always(s: Source):
    """A guard that lets all pass: bounds, a row that is not there, a graph that does not fit."""
    for first, last in _conditions(s):
        yield Edit(first, last, "true")


def _dropped(s: Source, *signs: str) -> Iterator[Edit]:
    """Each operand of these signs left out, but the first of a chain before - / or %."""
    chains = set()
    for i in s.find(*signs):
        if not s.is_binary(i):
            continue
        first, last, sign = s.left(i), s.right(i), s.words[i]
        if sign == "+" and "string" in s.kinds[first : last + 1]:
            continue
        yield Edit(first, last, s.of(first, i - 1))
        chain = (first, {"-": "+", "/": "*", "%": "*"}.get(sign, sign))
        is_first = chain not in chains and sign in ("+", "*", "|", "&&", "||")
        if is_first and not _SPARES.fullmatch(s.of(first, i - 1)):
            yield Edit(first, last, s.of(i + 1, last))
        chains.add(chain)


@operator
def part_of_condition(s: Source):
    """One of several conditions forgotten."""
    yield from _dropped(s, "&&", "||")


@operator
def verdict(s: Source):
    """A question that always has the same answer."""
    for i in s.find("bool"):
        last = i + 3
        while s.words[i + 2] == "=" and s.words[last] not in (";", ","):
            last = s.close.get(last, last) + 1
        if last > i + 4:
            for value in ("true", "false"):
                yield Edit(i + 3, last - 1, value)
    for first, last in s.statements:
        if s.words[first] == "return" and s.returns_bool(first):
            for value in ("true", "false"):
                if s.words[last - 1] not in ("true", "false"):
                    yield Edit(first + 1, last - 1, value)


@operator
def no_statement(s: Source):
    """A step forgotten: a rounding, a correction, a sum, an operand of a launch."""
    for first, last in s.statements:
        words = s.words[first : last + 1]
        if words[0] in _CONTROL or words[0] in BARRIERS or _KEPT.search(s.of(first, last)):
            continue
        at = first
        while s.words[at] not in _ASSIGN and at < last:
            if s.kinds[at] == "word" and s.kinds[at + 1] == "word":
                break  # a declaration
            at = s.close.get(at, at) + 1
        if s.words[at] in _ASSIGN and s.words[at - 1] != "auto":
            declares = re.match(r"(const )?[\w:]+(<[^=]*>)?[&*]* \w+(\[\w*\])* =", s.of(first, at))
            if not declares:
                yield Edit(first, last, ";")
        elif at == last and s.words[last - 1] == ")" or words[0] in ("++", "--"):
            if s.kinds[first] == "word" or words[0] in ("++", "--"):
                yield Edit(first, last, ";")


@operator
def no_term(s: Source):
    """A term of a sum forgotten: eps, an offset, a correction, a mean, one more."""
    yield from _dropped(s, "+", "-")


@operator
def no_factor(s: Source):
    """A factor or a divisor forgotten: a stride, a weight, a count, a remainder."""
    yield from _dropped(s, "*", "/", "%")


@operator
def no_bits(s: Source):
    """A part of a key, or a mask, forgotten."""
    yield from _dropped(s, "|", "&")


@operator
def one_choice(s: Source):
    """What is chosen between two is always the same."""
    for i in s.find("?"):
        if not s.is_binary(i):
            continue
        colon = i + 1
        depth = 0
        while s.words[colon] != ":" or depth:
            depth += (s.words[colon] == "?") - (s.words[colon] == ":")
            colon = s.close.get(colon, colon) + 1
        first, last = s.left(i), s.right(colon)
        yield Edit(first, last, s.of(i + 1, colon - 1))
        yield Edit(first, last, s.of(colon + 1, last))


@operator
def unwrapped(s: Source):
    """A value taken as it is: not rounded, not clamped, not summed over a row's threads."""
    for i in s.find(*_WRAPPERS, "min", "max", "fma", "ceil_div"):
        if (opened := s.is_called(i)) is None or s.words[i - 1] in ("inline", "float", "."):
            continue
        arguments = [s.of(*each) for each in s.arguments(opened)]
        first = i - 2 if s.words[i - 1] == "::" else i
        if s.words[i] in _WRAPPERS and arguments:
            yield Edit(first, s.close[opened], f"({arguments[0]})")
        elif s.words[i] in ("min", "max") and len(arguments) == 2:
            yield Edit(first, s.close[opened], f"({arguments[0]})")
            yield Edit(first, s.close[opened], f"({arguments[1]})")
        elif s.words[i] == "fma" and len(arguments) == 3:
            yield Edit(first, s.close[opened], f"({arguments[2]})")
        elif s.words[i] == "ceil_div":
            yield Edit(first, s.close[opened], f"(({arguments[0]}) / ({arguments[1]}))")


@operator
def bound(s: Source):
    """One past the last, or the last one left out."""
    for i in s.find("<", "<=", ">", ">="):
        # Not of floats, nor of arrays that no device checks.
        kept = r"\d\.|inf|eps|f$|\.size\(\)|[<>]=? ([1-9]\d*|[A-Z]|k[A-Z]\w*)$"
        if s.is_binary(i) and not re.search(kept, s.of(s.left(i), s.right(i))):
            new = s.words[i].removesuffix("=") if "=" in s.words[i] else s.words[i] + "="
            yield Edit(i, i, new)


@operator
def first_index(s: Source):
    """The first of many for all: a stride, a row, an axis of an index dropped."""
    for i in s.find("["):
        last = s.close[i] - 1
        if (
            last > i + 1
            and (s.kinds[i - 1] == "word" or s.words[i - 1] in (")", "]"))
            and s.words[i - 1] != "auto"
        ):
            yield Edit(i + 1, last, "0")


@operator
def first_pass(s: Source):
    """A loop that ends after its first pass."""
    for i in s.find("for"):
        words = s.words[i + 1 : i + 7]  # ( int i = 0 ;
        if words[3:] == ["=", "0", ";"] and s.words[i + 7] != ";":
            last = next(j for j in range(i + 7, s.close[i + 1]) if s.words[j] == ";") - 1
            yield Edit(i + 7, last, f"{words[2]} < 1")


@operator
def other_sign(s: Source):
    """A sign forgotten."""
    for i in s.find("-"):
        if s.words[i - 1] in ("(", ",", "=", "?", ":", "return") and s.kinds[i + 1] == "word":
            yield Edit(i, i, "")


@operator
def other_constant(s: Source):
    """An argument or a variable's first value that is the other one of two."""
    for i in s.find("true", "false"):
        if s.words[i - 1] in ("(", ",", "=", "{") and s.words[i + 1] in (")", ",", ";", "}"):
            yield Edit(i, i, "false" if s.words[i] == "true" else "true")


@operator
def zero(s: Source):
    """A value that is not there: a kept statistic, a sum so far, a shift."""
    for first, last in s.statements:
        at = next((i for i in range(first, last) if s.words[i] == "="), None)
        if at and last > at + 2 and re.match(r"float (\w+)$", s.of(first, at - 1)):
            yield Edit(at + 1, last - 1, "0.0f")


class Site(NamedTuple):
    """A place for a defect.

    Attributes:
        name: file:function:operator:ordinal, which other changes of the text leave as it is.
        start: The place in the text, up to `stop`.
        old: What stands there.
        new: What stands there then.
    """

    name: str
    start: int
    stop: int
    old: str
    new: str


def sites(file: str, text: str) -> list[Site]:
    """All places for defects in a file's text."""
    source, counts, found = Source(text), Counter(), []
    for name, find in OPERATORS.items():
        for edit in find(source):
            function, old = source.function_of[edit.first], source.of(edit.first, edit.last)
            if function and old != edit.new:
                key = f"{file}:{function}:{name}"
                counts[key] += 1
                start, stop = source.starts[edit.first], source.end(edit.last)
                found.append(Site(f"{key}:{counts[key]}", start, stop, old, edit.new))
    return found
