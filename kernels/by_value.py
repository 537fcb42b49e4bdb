"""What kernels take by value: numbers and layouts, which a launch passes together, as words.

A kernel declares each by its name, as a parameter of its own. All of them are in the buffer
`BUFFER`, in words of 32 bits: a launch's host time grows with what it binds. A kernel for Metal
begins by reading the numbers, so that none depends on a function constant.
"""

import re
from collections.abc import Iterable

from msl.declarations import Kernel
from msl.tokens import SourceError

BUFFER = 0
LAYOUT = 6  # words, as kLayoutWords of kernels/common/rows.h
LAYOUTS = "layouts"  # those of a launch's rows: as many as it has

_READ = {"int": "words_[{}]", "uint": "uint(words_[{}])", "float": "as_type<float>(words_[{}])"}
_PARAMETER = re.compile(
    rf"\s*constant const (int|uint|float)([&*]) (\w+)\s*\[\[buffer\({BUFFER}\)[^]]*\]\],"
)
_HEAD = re.compile(r"\bvoid\s+\w+\(")


def places(declared: Iterable[tuple[str, bool]]) -> dict[str, int]:
    """The place among a launch's words of each name: numbers, then layouts, `layouts` last.

    Args:
        declared: the names, and whether each stands for layouts.
    """
    found, end = {}, 0
    for name, is_layout in sorted(declared, key=lambda of: (of[0] == LAYOUTS, of[1])):
        found[name] = end
        end += LAYOUT if is_layout else 1
    return found


def places_of(kernel: Kernel) -> dict[str, int]:
    """The same of a kernel's parameters.

    Raises:
        SourceError: If a number depends on a function constant.
    """
    taken = [p for p in kernel.parameters if p.address_space == "constant"]
    for p in taken:
        if p.condition and "&" in p.text:
            raise SourceError(
                f"{kernel.file}: number {p.name} of kernel {kernel.name} depends on {p.condition}"
            )
    return places((p.name, "*" in p.text) for p in taken)


def together(kernel: str) -> str:
    """A kernel's text for Metal: one parameter for all of them, and variables by their names."""
    declared = _PARAMETER.findall(kernel)
    if not declared:
        return kernel
    at = places((name, sign == "*") for _, sign, name in declared)
    variables = "".join(
        f"\n  constant const int* {name} = words_ + {at[name]};"
        if sign == "*"
        else f"\n  const {type} {name} = {_READ[type].format(at[name])};"
        for type, sign, name in declared
    )
    kernel = _PARAMETER.sub("", kernel)
    kernel = _HEAD.sub(rf"\g<0>\n    constant const int* words_ [[buffer({BUFFER})]],", kernel, 1)
    return kernel.replace(") {", f") {{{variables}", 1)
