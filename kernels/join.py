"""Joins the kernels and their headers into texts without comments and includes but Metal's own.

python kernels/join.py metal FOLDER     FOLDER/NAME.metal, the text of each library
python kernels/join.py cpp OUT          all of them as C++, for csrc/gpu/metal/kernel_text.h

The kernels of a folder are a library, which its path names: norm/vjp is norm_vjp. Files in a folder
cuda/, which only CUDA launches, are left out but for --cuda, with which a simulated GPU runs them,
too: they are of the folder above. In C++ the instantiations of templates stand apart from a text,
so that a kernel is compiled when it is first launched: what Metal refuses takes no other along.

No kernel writes a number: a library's `[[function_constant]]`s get theirs in the order of their
declarations, a kernel's arrays in that of its parameters. What it takes by value is in one buffer
(by_value.py), of which a text for Metal has one parameter.
"""

import argparse
import hashlib
import itertools
import re
from collections.abc import Sequence
from pathlib import Path

import by_value
from msl.comments import without_comments
from msl.loops import unrolled
from msl.preprocess import preprocess
from msl.tokens import Tokens

ROOT = Path(__file__).parent.parent
INCLUDE = re.compile(r'^#include "(.*)"$')
# What gets a number.
CONSTANT = re.compile(r"(\w+)\s+\[\[function_constant(?=\]\])")
ARRAY = re.compile(r"(\bdevice\b[^,;]*\[\[buffer)(?=[],])")
WORDS = re.compile(r"(\bconstant\b[^,;]*\[\[buffer)(?=[],])")
KERNEL = "[[kernel"
# What instantiates a template as one kernel, and a call of it.
MACRO = re.compile(r"^#define (INSTANTIATE_\w+)\(([^)]*)\)((?:.*\\\n)*.*)", re.M)
CALL = re.compile(r"^(INSTANTIATE_\w+)\((.*)\)$")
# A list of instances, and a macro for each of them.
LIST = re.compile(r"^#define (FOR_\w+)\(OF\)((?:.*\\\n)*.*)\n", re.M)
FOR_EACH = re.compile(r"^(FOR_\w+)\((\w+)\)$", re.M)
CUDA, METAL = "#ifdef __CUDACC__", "#ifndef __CUDACC__"
HOST_NAME = re.compile(r"host_name\(([^)]*)\)")
# Kernels of which there is one, whether templates or not.
ONE = re.compile(r'^template \[\[host_name\("(\w+)"\)\]\] \[\[kernel\]\]$', re.M)
FUNCTION = re.compile(r"^(template <.*>.*\n)?\[\[kernel\b[^]]*\]\]\s+void\s+(\w+)\(", re.M)


def libraries(cuda: bool = False, root: Path = ROOT) -> dict[str, list[Path]]:
    """The files of each library by name, with or without those for CUDA only."""
    files: dict[str, list[Path]] = {}
    kernels = root / "kernels"
    for path in sorted(kernels.glob("**/*.metal")):
        folders = path.relative_to(kernels).parent.parts
        if cuda or "cuda" not in folders:
            name = "_".join(folder for folder in folders if folder != "cuda")
            files.setdefault(name, []).append(path)
    return files


def join(path: Path, seen: set[Path], root: Path) -> list[str]:
    """The lines of a file with those of the headers it includes, each header once.

    Comments and empty lines are left out.
    """
    if path in seen:
        return []
    seen.add(path)
    lines = []
    for line in without_comments(path.read_text()).splitlines():
        if include := INCLUDE.match(line):
            lines += join(root / include[1], seen, root)
        elif line.strip() and line != "#pragma once":
            lines.append(line)
    return lines


def joined(files: list[Path], root: Path = ROOT) -> str:
    """The text of a library with these files, but for numbers. Lists of instances are lines."""
    seen: set[Path] = set()
    text = "\n".join(line for path in files for line in join(path, seen, root)) + "\n"
    lists = {name: re.findall(r"OF(\(.*?\))", body) for name, body in LIST.findall(text)}

    def each(match: re.Match) -> str:
        return "\n".join(match[2] + arguments for arguments in lists[match[1]])

    return FOR_EACH.sub(each, LIST.sub("", text))


def constants(files: list[Path], root: Path = ROOT) -> dict[str, int]:
    """The numbers of the function constants in a library that has these files."""
    names = dict.fromkeys(CONSTANT.findall(joined(files, root)))
    return {name: number for number, name in enumerate(names)}


def numbered(text: str, constants: dict[str, int]) -> str:
    """A text with the numbers of its function constants, and of each kernel's buffers."""

    def with_buffers(kernel: str) -> str:
        numbers = itertools.count(by_value.BUFFER + 1)
        kernel = ARRAY.sub(lambda match: f"{match[0]}({next(numbers)})", kernel)
        return WORDS.sub(rf"\1({by_value.BUFFER})", kernel)

    text = CONSTANT.sub(lambda match: f"{match[0]}({constants[match[1]]})", text)
    return KERNEL.join(map(with_buffers, text.split(KERNEL)))


def read(path: Path, root: Path, compiler: str, macros: Sequence[str] = ()) -> Tokens:
    """A file, preprocessed, with the numbers that the text of its library has, or else its own.

    Raises:
        SourceError: If it cannot be read.
    """
    text = preprocess(path, root, compiler, macros)
    of_libraries = libraries(cuda=True, root=root).values()
    files = next((files for files in of_libraries if path in files), [path])
    return Tokens(numbered(text, constants(files, root)), path.name)


def texts(cuda: bool = False) -> dict[str, str]:
    """The text of each of `libraries`, by its name.

    Raises:
        ValueError: If one is not ASCII: Metal's run-time compiler accepts nothing else.
    """
    found, every = {}, libraries(cuda=True)
    for name, files in libraries(cuda).items():
        text = numbered(joined(files), constants(every[name]))
        text = KERNEL.join(map(by_value.together, text.split(KERNEL)))
        found[name] = unrolled(text, name)
        if not found[name].isascii():
            raise ValueError(f"the text of library {name} is not ASCII")
    return found


def file_name(name: str, text: str) -> str:
    """The name by which MLX and the disk keep a library. It changes with the text."""
    return f"mlx_norms_{name}_{hashlib.sha256(text.encode()).hexdigest()[:16]}"


def by_kernel(text: str) -> tuple[str, dict[str, str]]:
    """A text without its instantiations, and for each kernel its own: a line, or nothing.

    Raises:
        ValueError: If a macro does not instantiate exactly one kernel.
    """
    macros = {name: (parameters, body) for name, parameters, body in MACRO.findall(text)}
    lines, enclosing = [], []  # of the conditions that a line stands under
    kernels = dict.fromkeys(
        [*ONE.findall(text), *(name for of, name in FUNCTION.findall(text) if not of)], ""
    )
    for line in text.splitlines():
        if line.startswith("#if"):
            enclosing.append(line)
        elif line == "#else":
            enclosing[-1] = {CUDA: METAL, METAL: CUDA}.get(enclosing[-1], "")
        elif line == "#endif":
            enclosing.pop()
        if not (call := CALL.match(line)):
            lines.append(line)
        elif CUDA not in enclosing:
            kernels[_instantiated(call[1], *macros[call[1]], call[2])] = line
    return "\n".join(lines) + "\n", kernels


def _instantiated(macro: str, parameters: str, body: str, arguments: str) -> str:
    """The name of the kernel that a macro instantiates."""
    names = HOST_NAME.findall(body)
    if len(names) != 1:
        raise ValueError(f"{macro} instantiates {len(names)} kernels: a macro for each, please")
    values = dict(zip(parameters.split(", "), arguments.split(", "), strict=True))
    words = re.findall(r'"(\w+)"|#(\w+)', names[0])
    return "".join(literal or values[parameter] for literal, parameter in words)


def as_cpp(texts: dict[str, str]) -> str:
    entries = ""
    for name, text in texts.items():
        rest, of_kernels = by_kernel(text)
        # Compilers accept string literals of at most 64 KB, but join adjacent ones.
        pieces = [rest[i : i + 8192] for i in range(0, len(rest), 8192)]
        literals = "\n".join(f'R"MSL({piece})MSL"' for piece in pieces)
        kernels = ", ".join(f'{{"{kernel}", "{line}"}}' for kernel, line in of_kernels.items())
        entries += f'      {{"{name}", "{file_name(name, text)}", {{{kernels}}},\n{literals}}},\n'
    return (
        '#include "csrc/gpu/metal/kernel_text.h"\n\n'
        "namespace mlx_norms {\n\n"
        "const std::vector<LibraryText>& library_texts() {\n"
        f"  static const std::vector<LibraryText> texts = {{\n{entries}  }};\n"
        "  return texts;\n}\n\n"
        "} // namespace mlx_norms\n"
    )


if __name__ == "__main__":
    parser = argparse.ArgumentParser(usage=__doc__)
    parser.add_argument("form", choices=["metal", "cpp"])
    parser.add_argument("out", type=Path)
    parser.add_argument("--cuda", action="store_true")
    given = parser.parse_args()
    if given.form == "cpp":
        given.out.write_text(as_cpp(texts(given.cuda)))
    else:
        given.out.mkdir(parents=True, exist_ok=True)
        for name, text in texts(given.cuda).items():
            (given.out / f"{name}.metal").write_text(text)
