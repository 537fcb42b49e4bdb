"""What the variables of a function show of MSL's rules, by the text alone."""

from __future__ import annotations

import re
from typing import NamedTuple

from .outline import KEYWORDS, SPACES, Violation, after_angles

_QUALIFIERS = {"const", "volatile", "constexpr", "static", "typename", "unsigned", *SPACES}


class Variable(NamedTuple):
    """A variable or parameter: `space` of what it is or points to; `constant`: usable as a size."""

    space: str | None
    pointer: bool
    constant: bool


def _declared(declaration):
    """Index of the name and the variable of `type name ...`; None where that is no declaration."""
    i, words = 0, set()
    while i < len(declaration) and declaration[i].text in _QUALIFIERS:
        words.add(declaration[i].text)
        i += 1
    if i >= len(declaration) or declaration[i].kind != "name" or declaration[i].text in KEYWORDS:
        return None
    i += 1
    while i < len(declaration):
        if declaration[i].text == "::":
            i += 2
        elif declaration[i].text == "<" and after_angles(declaration, i) > i:
            i = after_angles(declaration, i)
        else:
            break
    pointer = False
    while i < len(declaration) and declaration[i].text in ("*", "&", "const", *SPACES):
        pointer |= declaration[i].text in "*&"
        words.add(declaration[i].text)
        i += 1
    if i >= len(declaration) or declaration[i].kind != "name":
        return None
    space = next((s for s in SPACES if s in words), None)
    fixed = bool({"constexpr", "const"} & words) and not pointer
    return i, Variable(space, pointer, fixed)


def check(outline):
    """Violations by the variables of each function: static locals, initializers, sizes, casts."""
    for function in outline.functions:
        variables = {}
        for part in function.parameters:
            if declared := _declared(part):
                at, variable = declared
                variables[part[at].text] = variable._replace(constant=False)
        for statement in _statements(outline, function):
            yield from _statement(statement, variables)
        yield from _casts(outline, function, variables)


def _statements(outline, function):
    """The simple statements of a body; the head of a `for` gives its parts."""
    code, (start, stop) = outline.code, function.body
    head = i = start + 1
    while i < stop:
        text, before = code[i].text, code[i - 1].text
        if text == "{" and before not in (")", "else", "do", ";", "{", "}", ":"):
            i = outline.partner.get(i, i)  # an initializer
        elif text in (";", "{", "}"):
            yield code[head : i + 1]
            head = i + 1
        elif text == "(" and before == "for":
            head = i + 1
        i += 1


def _statement(statement, variables):
    if any(t.text == "static" for t in statement):
        if not any(t.text in ("constant", "constexpr") for t in statement):
            yield Violation(statement[0].line, "static local", "MSL has no static local variables")
    declared = _declared(statement)
    if not declared or len(statement) < declared[0] + 2:
        return
    at, variable = declared
    name, after = statement[at], statement[at + 1].text
    if after not in ("=", ";", "[", "{", ","):
        return
    computed = any(not variables[t.text].constant for t in statement[at:] if t.text in variables)
    fixed = variable.constant and (not computed or any(t.text == "constexpr" for t in statement))
    variables[name.text] = variable._replace(constant=fixed)
    if variable.space == "threadgroup" and not variable.pointer:
        # Apple's compiler takes a null initializer, and no other one.
        tail = statement[at:]
        first = next((j for j, t in enumerate(tail) if t.text in ("=", "{")), len(tail))
        if any(re.match(r"[A-Za-z_]|.*[1-9]|0x", t.text) for t in tail[first:]):
            message = f"threadgroup variable {name.text} cannot be initialized"
            yield Violation(name.line, "threadgroup initializer", message)
    if after == "[":
        end = next((j for j in range(at, len(statement)) if statement[j].text == "]"), at)
        for j in range(at + 2, end):
            token, nxt = statement[j], statement[j + 1].text
            bound = variables.get(token.text) if token.kind == "name" else None
            member = statement[j - 1].text in (".", "->", "::") or nxt in ("::", "(", "<")
            if bound and not bound.constant and not member:
                message = f"the length of {name.text} depends on the variable {token.text}"
                yield Violation(name.line, "variable-length array", message)


def _casts(outline, function, variables):
    code = outline.code
    for i in range(function.body[0], function.body[1]):
        if code[i].text in ("reinterpret_cast", "static_cast", "const_cast"):
            end = after_angles(code, i + 1)
            target, operand = code[i + 2 : end - 1], end + 1
        elif code[i].text == "(" and (code[i - 1].kind != "name" or code[i - 1].text in KEYWORDS):
            end = outline.partner.get(i, i)
            target, operand = code[i + 1 : end], end + 1
        else:
            continue
        words = [t.text for t in target]
        to = next((s for s in SPACES if s in words), None)
        if to is None or not {"*", "&"} & set(words) or "=" in words or "," in words:
            continue
        source = _operand_space(code, operand, variables)
        if source and source != to:
            message = f"cast from {source} to {to}"
            yield Violation(code[i].line, "address-space cast", message)


def _operand_space(code, i, variables):
    """The space that a cast's operand points into, where the text of the operand tells it."""
    address = False
    while code[i].text in ("(", "&"):
        address |= code[i].text == "&"
        i += 1
    variable = variables.get(code[i].text)
    element = code[i + 1].text in ("[", ".", "->", "(")
    return None if variable is None or (element and not address) else variable.space
