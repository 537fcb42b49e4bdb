"""For writers of Metal kernels: address spaces, by clang; found members that Metal 4.1 refuses.

The simulator runs all spaces as one. Here clang reads the text with real ones, as C++ for OpenCL:
there a pointer has a space that no conversion changes, `constant` cannot be written, and a method
is for the space it names, as in MSL. It reads twice: without OpenCL's generic space, so that an
unqualified pointer is the thread's own, as in MSL before 4.1; and with it, since only so it knows
all copies of objects. As of MSL 4.1 it reads once, with the generic space: there a pointer, a
reference and a method's `this` without a space are generic, and bind to nothing of the thread's.
Clang takes no temporary for the thread's, so where one is handed on as such is a place not read.

    python -m metalsim.address_spaces FILE.metal [-I dir] [--generic]

prints what it finds, with --generic as of MSL 4.1.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

from .compiler import CompileError, preprocess
from .msl.declarations import declarations, read_attributes
from .msl.tokens import SourceError, Tokens

HEADER = Path(__file__).with_name("address_spaces.h")
COMPILERS = ("clang++-16", "clang++", *(f"clang++-{n}" for n in range(22, 16, -1)))

_LANGUAGE = "-x clcpp -cl-std=clc++2021 -cl-no-stdinc -fsyntax-only -w -ferror-limit=0".split()
_LANGUAGE += ["-include", str(HEADER), "-Xclang"]
_WITHOUT = "device_enqueue pipes program_scope_global_variables".split()
_EXTENSIONS = ",".join(f"-__opencl_c_{x}" for x in _WITHOUT) + ",+cl_khr_fp16"
# How clang reads: without the generic space, with it, and as of MSL 4.1.
_ALONE, _GENERIC, _NEWER = "alone", "generic", "newer"

# Words of OpenCL's that MSL has for names.
_FOREIGN = set("global local generic read_only write_only read_write pipe event_t queue_t".split())
_VECTOR = re.compile(r"(?:packed_)?(?:bool|u?char|u?short|u?int|u?long|half|bfloat|float)[234]$")
_WORDS = {
    "__global": "device",
    "__local": "threadgroup",
    "__constant": "constant",
    "__private": "thread",
    "__generic": "generic",
    "_Float16": "bfloat",
}
_SPACE = r"\b(?:device|threadgroup|constant|thread|generic)\b"


class Diagnostic(NamedTuple):
    """What clang says of a line. `space`: whether spaces or sizes of memory are the matter."""

    file: str
    line: int
    message: str
    space: bool


def compiler():
    """The clang of this machine, or None: no other compiler has address spaces."""
    return next((path for name in COMPILERS if (path := shutil.which(name))), None)


def check(path_or_text, include=(), defines=(), generic=False):
    """The faults in the address spaces of an MSL file or text.

    Args:
        path_or_text: A path, or the text itself.
        include: Folders in which its headers are looked for.
        defines: Macros, as "NAME" or "NAME=value".
        generic: Whether what names no space is generic, as of MSL 4.1, or the thread's.
    Returns:
        One diagnostic a line. One with `space` false is something clang could not read as MSL:
        what depends on it was not checked.
    Raises:
        OSError: The file cannot be read.
        CompileError: There is no clang, or it does not find a header.
        SourceError: A bracket of the text is not closed.
    """
    clang = compiler()
    if clang is None:
        raise CompileError("address spaces need clang; tried: " + ", ".join(COMPILERS))
    is_path = isinstance(path_or_text, Path) or "\n" not in path_or_text
    name = str(path_or_text) if is_path else "<text>"
    text = Path(path_or_text).read_text() if is_path else path_or_text
    folders = [*([Path(name).resolve().parent] if is_path else []), *include]
    tokens = Tokens(preprocess(text, name, clang, folders, defines), name)
    found = _kernel_parameters(tokens)
    text = _translate(tokens, generic)
    of = (_NEWER,) if generic else (_ALONE, _GENERIC)
    readings = [_diagnostics(clang, text, reading) for reading in of]
    # What both refuse alike: a method's object has a space in the one, and copies in the other.
    unread = set.intersection(*({d[:3] for d in r if not d.space} for r in readings))
    for d in (d for reading in readings for d in reading):
        known = any(d[:2] == f[:2] for f in found)
        if not known and (d.space or d[:3] in unread):
            found.append(d)
    return found


def _kernel_parameters(tokens):
    """Pointer and reference parameters of kernels that name no space of the device's."""
    try:
        kernels = declarations(tokens).kernels.values()
    except SourceError as error:
        first = tokens.all[0]
        return [Diagnostic(first.file, first.line, str(error), False)]
    return [
        Diagnostic(at.file, at.line, f"kernel parameter {p.name} has no address space", True)
        for kernel in kernels
        for p in kernel.parameters
        for at in [tokens.all[tokens.significant(p.start, p.stop)[0]]]
        if not p.position and p.address_space in (None, "thread")
    ]


def _translate(tokens, generic):
    """Preprocessed MSL as C++ for OpenCL, line for line."""
    # Clang does not take a temporary for the object of a method in __private. Before MSL 4.1 the
    # space can be left out.
    methods = {"constant": "__constant", "thread": "__private" if generic else ""}
    builtins = sorted({t.text for t in tokens.all if re.match(r"__metal_\w+$", t.text)})
    i = tokens.after(-1)
    while i < len(tokens):
        before = tokens[tokens.before(i)] if tokens.before(i) >= 0 else ";"
        after = tokens[tokens.after(i)] if tokens.after(i) < len(tokens) else ";"
        word = tokens[i]
        if tokens.is_attribute(i):
            close = tokens.close(i)
            constant = "function_constant" in read_attributes(tokens, i)
            tokens.erase(i, close + 1)
            if constant and tokens[tokens.after(close)] == ";":
                tokens[close] = "{}"  # OpenCL wants a value for each constant
            i = close
        elif word in ("kernel", "vertex", "fragment") and before != "::":
            tokens[i] = ""
        elif word in methods and before in (")", "const") and after in "{:;":
            tokens[i] = methods[word]
        elif word in _FOREIGN:
            tokens[i] += "_"
        elif word == "threadgroup" and before[-1] in ";{}:":
            i = _variables(tokens, i)
        elif _VECTOR.match(word) and after == "(" and before not in ("operator", "::"):
            tokens[i] = f"made<{word}>"
        elif word == "vec" and after == "<" and before != "operator":
            close = tokens.angle_close(tokens.after(i))
            if close is not None and tokens[tokens.after(close)] == "(":
                tokens[i], tokens[close] = "made<vec", ">>"
        i = tokens.after(i)
    return "".join(f"template <typename... A> float {b}(A...);\n" for b in builtins) + tokens.text()


def _variables(tokens, i):
    """`threadgroup T x[n];` as a reference: OpenCL lets kernels alone declare such variables.

    Returns:
        The last token that was dealt with.
    """
    name, end = None, i
    while tokens[end] not in (";", "}"):
        if tokens[end] == "<":
            end = tokens.angle_close(end) or end
        elif tokens[end] in ("*", "&", "("):
            return i
        elif name is None and tokens[tokens.after(end)] in ("[", "=", ",", "{", ";"):
            name = end
        end = tokens.after(tokens.skip_brackets(end))
    kind = "".join(tokens[k] for k in range(i, name))
    new, k = "", name
    while k < end:
        size = ""
        stop = tokens.after(k)
        while tokens[stop] == "[":
            size += "".join(tokens[j] for j in range(stop, tokens.close(stop) + 1))
            stop = tokens.after(tokens.close(stop))
        new += (
            f"typedef {kind} {tokens[k]}_t{size}; {tokens[k]}_t& {tokens[k]} = *({tokens[k]}_t*)0;"
        )
        while stop < end and tokens[stop] != ",":
            stop = tokens.after(tokens.skip_brackets(stop))
        k = tokens.after(stop)
    tokens.erase(i, end + 1)
    tokens[i] = new.replace("\n", " ")
    return end


def _diagnostics(clang, text, reading):
    sign = "-" if reading == _ALONE else "+"
    extensions = f"-cl-ext={sign}__opencl_c_generic_address_space,{_EXTENSIONS}"
    command = [clang, *_LANGUAGE, extensions, "-"]
    run = subprocess.run(command, input=text, capture_output=True, text=True)
    found, notes = [], None
    for line in run.stderr.splitlines():
        match = re.match(r"(.+?):(\d+):\d+: (error|fatal error|note): (.*)", line)
        if not match:
            continue
        message = match[4]
        for theirs, ours in _WORDS.items():
            message = message.replace(theirs, ours)
        if match[3] == "note":
            if notes is not None:
                notes.append(message)
        else:
            notes = []
            found.append((match[1], int(match[2]), message, notes))
    return [
        Diagnostic(f, n, m, any(_names_spaces(line, reading) for line in [m, *notes]))
        for f, n, m, notes in found
    ]


def _names_spaces(line, reading):
    """Whether a line of clang's is of address spaces, and not of its reading of MSL as OpenCL."""
    if re.search("static local variable must|array size is not a constant", line):
        return True  # OpenCL has these rules of MSL's
    if re.search("read-only variable|const-qualified", line):
        # With the generic space it takes the const one of two methods that differ in that.
        return reading != _GENERIC or re.search(r"\bconstant\b", line) is not None
    if reading == _GENERIC and re.search(r"\bgeneric\b", line):
        return False
    types = re.findall(r"'([^']*)'", line)
    spaces = [(space[0], t) for t in types if (space := re.search(_SPACE, t))]
    if "to a temporary object" in line or ("binding reference" in line and len(spaces) == 1):
        return "const thread" not in line
    # Clang has no space for members of class templates, and no copy of an object from one space
    # to another, which MSL has, unless it writes `constant`.
    if re.search("default address space|address space unqualified", line):
        return False
    if "implicit" in line and "'this' object is in address space 'constant'" not in line:
        return False
    if not re.search("address space|object parameter|cannot deduce a type", line):
        # Values are converted from one space to another; pointers are not.
        spaces = [(space, t) for space, t in spaces if "*" in t or "[" in t]
    return len({space for space, _ in spaces}) > 1


def main(arguments):
    """Checks the named files; returns 1 where one has a fault."""
    include = [arguments[i + 1] for i, a in enumerate(arguments) if a == "-I"]
    failed = 0
    for i, path in enumerate(arguments):
        if path in ("-I", "--generic") or (i and arguments[i - 1] == "-I"):
            continue
        found = check(Path(path), include, generic="--generic" in arguments)
        for d in found:
            if d.space:
                print(f"{d.file}:{d.line}: {d.message}")
                failed = 1
        if unread := [d for d in found if not d.space]:
            first = unread[0]
            print(f"{path}: {len(unread)} places that clang could not read as MSL and did not")
            print(f"  check, the first at {first.file}:{first.line}: {first.message}")
    return failed


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
