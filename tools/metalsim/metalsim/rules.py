"""For writers of Metal kernels: what Metal lacks of C++; found `half` and `level` used as names.

The simulator's compiler takes what Apple's does not, but for words that the shim forbids. `check`
reads the text alone and asks no compiler, so it names what can be told from the text: address
spaces, statics and sizes of arrays are left to `address_spaces`. Some of it has come to MSL since
(recursion with 2.4, lambdas with 4.0); kernels for every Mac do without.
"""

from __future__ import annotations

import sys
from pathlib import Path

from . import names
from .outline import KEYWORDS, Outline, Violation, after_angles, split


def check(text):
    """What in an MSL text the language does not have.

    Args:
        text: The text as written; macros are read as they stand, headers are not opened.
    Returns:
        Violations in the order of their lines.
    """
    outline = Outline(text)
    found = [
        *_long_long(outline),
        *_lambdas(outline),
        *_recursion(outline),
        *_function_pointers(outline),
        *names.check(outline),
    ]
    return sorted(set(found))


def _long_long(outline):
    for before, token in zip(outline.code, outline.code[1:]):
        if before.text == token.text == "long":
            yield Violation(token.line, "long long", "MSL has no long long")


def _lambdas(outline):
    code = outline.code
    for i, token in enumerate(code):
        end = outline.partner.get(i)
        if token.text != "[" or end is None or i == 0 or end + 1 >= len(code):
            continue
        before = code[i - 1]
        operand = before.kind in ("name", "number", "string")
        operand = operand and (before.text not in KEYWORDS or before.text == "operator")
        attribute = code[i + 1].text == "[" or before.text == "["
        if operand or before.text in (")", "]", "}", ">", "&") or attribute:
            continue
        if code[end + 1].text in ("(", "{"):
            yield Violation(token.line, "lambda", "MSL has no lambda expressions")


def _calls(outline, function):
    """Functions of the text that the body of `function` surely calls."""
    code, (start, stop) = outline.code, function.body
    for i in range(start + 1, stop):
        if code[i].kind != "name" or code[i + 1].text != "(" or code[i].text in names.FUNCTIONS:
            continue  # an overload may call Metal's own by the same name
        owner, before = function.owner, code[i - 1].text
        if before == "::":
            owner = code[i - 2].text
        elif before in (".", "->") and code[i - 2].text != "this":
            continue
        elif code[i - 1].kind == "name" and before not in KEYWORDS:
            continue  # a declaration: T name(...)
        arguments = split(code[i + 2 : outline.partner.get(i + 1, i + 2)])
        if any(t.text == "..." for part in arguments for t in part):
            continue
        named = [f for f in outline.functions if f.name == code[i].text]
        if before == "::":
            qualified = [f for f in named if f.owner == owner]
            named = qualified or [f for f in named if f.owner is None]
        else:
            named = [f for f in named if f.owner == owner] or [f for f in named if f.owner is None]
        named = [f for f in named if f.takes(len(arguments))]
        if len(named) == 1:
            yield named[0]


def _recursion(outline):
    calls = {f: set(_calls(outline, f)) for f in outline.functions}
    for function in outline.functions:
        seen, todo = set(), list(calls[function])
        while todo:
            callee = todo.pop()
            if callee not in seen:
                seen.add(callee)
                todo += calls[callee]
        if function in seen:
            message = f"{function.name} calls itself"
            if function not in calls[function]:
                message += " through " + ", ".join(sorted(f.name for f in seen - {function}))
            yield Violation(function.line, "recursion", message)


def _function_pointers(outline):
    """`type (*name)(...)`, but for aliases and parameters of templates, which are legal."""
    code = outline.code
    head = skipped = 0
    for i in range(1, len(code) - 4):
        if code[i].text == "template":
            skipped = after_angles(code, i + 1)
        if code[i].text in (";", "{", "}"):
            head = i + 1
        end = outline.partner.get(i)
        if code[i].text != "(" or code[i + 1].text not in ("*", "&") or end is None:
            continue
        if (end != i + 3 and code[i + 3].text != "[") or code[end + 1].text != "(":
            continue
        before = code[i - 1]
        typed = before.kind == "name" and before.text not in KEYWORDS
        if code[i + 2].kind != "name" or not (typed or before.text in (">", "*")):
            continue
        if i > skipped and code[head].text not in ("typedef", "using"):
            yield Violation(code[i].line, "function pointer", "MSL has no plain function pointers")


def main(paths):
    """Prints the violations of the named files; returns 1 where there are any."""
    failed = 0
    for path in paths:
        for violation in check(Path(path).read_text()):
            print(f"{path}:{violation.line}: {violation.rule}: {violation.message}")
            failed = 1
    return failed


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
