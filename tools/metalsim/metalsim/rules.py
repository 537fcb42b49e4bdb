"""Rules for what C++ has and the Metal Shading Language lacks, and for names that both have.

The simulator's compiler takes all of C++; Apple's does not. `check` reads the text alone and asks
no compiler, so it names what can be told from the text: address spaces, statics and sizes of arrays
are left to `address_spaces`. Some of it has come to MSL since (recursion with 2.4, lambdas with
4.0); kernels for every Mac do without.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

from . import names
from .outline import KEYWORDS, Outline, Violation, after_angles, split, tokens

# Words that are a fault wherever they stand in code.
_WORDS = {
    "double": ("double", "MSL has no double"),
    "virtual": ("virtual", "MSL has no virtual functions"),
    "try": ("exceptions", "MSL has no exceptions"),
    "catch": ("exceptions", "MSL has no exceptions"),
    "throw": ("exceptions", "MSL has no exceptions"),
    "new": ("new and delete", "MSL has no operator new"),
    "goto": ("goto", "MSL has no goto"),
    "thread_local": ("thread_local", "MSL has no thread_local"),
    "register": ("register", "MSL has no register variables"),
    "dynamic_cast": ("type identification", "MSL has no dynamic_cast"),
    "typeid": ("type identification", "MSL has no typeid"),
}
_SYSTEM = re.compile(r"metal_|simd/|MetalPerformancePrimitives/|TargetConditionals\.h$")


def check(text, self_contained=False):
    """What in an MSL text the language does not have.

    Args:
        text: The text as written; macros are read as they stand, headers are not opened.
        self_contained: Whether the text is to be compiled alone: no header but Metal's own may be
            left in it, and no character outside ASCII, comments included.
    Returns:
        Violations in the order of their lines.
    """
    outline = Outline(text)
    found = [
        *_characters(outline, text, self_contained),
        *_includes(outline, self_contained),
        *_words(outline),
        *_lambdas(outline),
        *_recursion(outline),
        *_function_pointers(outline),
        *names.check(outline),
    ]
    return sorted(set(found))


def _characters(outline, text, self_contained):
    lines = set()
    if self_contained:
        lines = {n for n, line in enumerate(text.split("\n"), 1) if not line.isascii()}
    else:
        lines = {t.line for t in outline.code + outline.directives if not t.text.isascii()}
    for line in lines:
        yield Violation(line, "ASCII", "a character outside ASCII")


def _includes(outline, self_contained):
    for token in outline.directives:
        name = re.match(r"\s*#\s*(?:include|import)\s*([<\"])([^>\"]+)", token.text)
        if not name or _SYSTEM.match(name[2]):
            continue
        if name[1] == "<":
            yield Violation(token.line, "std", f"<{name[2]}> is no header of Metal's")
        elif self_contained:
            message = f'"{name[2]}" is included by a text that is to be self-contained'
            yield Violation(token.line, "self-contained", message)


def _words(outline):
    macros = []
    for token in outline.directives:
        if body := re.match(r"\s*#\s*define\s+\w+(?:\([^)]*\))?", token.text):
            first = token.line + token.text.count("\n", 0, body.end())
            macros += [*tokens(token.text[body.end() :].replace("\\\n", " \n"), first)]
    for code in (outline.code, macros):
        for i, token in enumerate(code):
            before = code[i - 1].text if i else ""
            after = code[i + 1].text if i + 1 < len(code) else ""
            if token.kind == "number":
                if re.fullmatch(r"(?!0[xX])[\d.']+(?:[eE][-+]?\d+)?[lL]", token.text) and (
                    "." in token.text or "e" in token.text.lower()
                ):
                    yield Violation(token.line, "long double", "MSL has no long double")
            elif token.kind != "name":
                continue
            elif token.text == "double" and before == "long":
                yield Violation(token.line, "long double", "MSL has no long double")
            elif token.text == "long" and before == "long":
                yield Violation(token.line, "long long", "MSL has no long long")
            elif re.fullmatch("double[234]?", token.text):
                yield Violation(token.line, *_WORDS["double"])
            elif token.text == "delete" and before != "=":
                yield Violation(token.line, "new and delete", "MSL has no operator delete")
            elif token.text == "std" and after == "::":
                yield Violation(token.line, "std", "MSL has no C++ standard library")
            elif token.text in _WORDS:
                yield Violation(token.line, *_WORDS[token.text])


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


def main(arguments):
    """Prints the violations of the named files; returns 1 where there are any."""
    self_contained = "--self-contained" in arguments
    failed = 0
    for path in (a for a in arguments if a != "--self-contained"):
        for violation in check(Path(path).read_text(), self_contained):
            print(f"{path}:{violation.line}: {violation.rule}: {violation.message}")
            failed = 1
    return failed


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
