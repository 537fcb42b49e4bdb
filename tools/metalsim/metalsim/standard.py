"""What a Metal text has of C++17 and later, said by clang: MSL before 4.0 is C++14.

The simulator's own library is C++20, and so is what a text is rewritten to. Clang knows of each
construct with which standard it came; here it is asked for the text's own lines alone, and for its
templates as the kernels instantiate them. It tells nothing of attributes, which are gone by then,
nor of what it has no warning for: concepts, `auto` parameters, a missing `typename` and aggregates
made with parentheses. `python -m metalsim.standard FILE.metal [-I dir]` prints
what it finds.
"""

from __future__ import annotations

import argparse
import re
import sys
from pathlib import Path

from .address_spaces import COMPILERS, compiler
from .compiler import CompileError, check_syntax, preprocess
from .glue import glue
from .msl.declarations import declarations
from .msl.tokens import Tokens
from .rewrite import rewrite

_NEWER = (
    "-Wpre-c++17-compat-pedantic",
    "-Wpre-c++20-compat-pedantic",
    "-Wc++2b-extensions",
)
_WARNING = re.compile(r"^(.+?:\d+):\d+: warning: (.*?)(?: \[-W.*\])?$", re.MULTILINE)


def check(text: str, name="source", include=()) -> list[str]:
    """What in an MSL text came to C++ after C++14, each with its place.

    Args:
        text: with kernels; a template that none of them uses is parsed only.
        name: what places call it.
        include: folders for its includes.

    Raises:
        CompileError: there is no clang, or it refuses the text.
        SourceError: its declarations are not understood.
    """
    clang = compiler()
    if clang is None:
        raise CompileError("the standard of a text needs clang; tried: " + ", ".join(COMPILERS))
    tokens = Tokens(preprocess(text, name, clang, include), name)
    declared = declarations(tokens)
    macros, cpp, _ = rewrite(tokens, declared, members_specialize=True)
    messages = check_syntax(macros, cpp + glue(declared.entries), clang, _NEWER)
    return [f"{place}: {what}" for place, what in dict.fromkeys(_WARNING.findall(messages))]


def main(arguments):
    """Checks the named files; returns 1 where one has something newer than C++14."""
    parser = argparse.ArgumentParser(prog="python -m metalsim.standard")
    parser.add_argument("files", nargs="+", type=Path)
    parser.add_argument("-I", dest="include", action="append", default=[])
    options = parser.parse_args(arguments)
    failed = 0
    for file in options.files:
        for line in check(file.read_text(), str(file), [file.resolve().parent, *options.include]):
            print(line)
            failed = 1
    return failed


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
