"""Writes the interface of each kernel, as its .metal file declares it, as C++.

python kernels/interface.py COMPILER HEADER SOURCE

HEADER gets the kernels' enumerations, and a structure per kernel, whose members are its function
constants, arrays and words by name: launch plans set them (csrc/gpu/interface.h). An array x that
has a constant x_flags, or group_x_flags, stands for both and for a constant that it depends on.
SOURCE gets what a launch must set. COMPILER is a C++ compiler, which preprocesses the kernels for
Metal and for CUDA; the structures have what either of them has.
"""

import sys
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

import by_value
import join
from msl.declarations import Declarations, Kernel, Parameter, declarations
from msl.reach import reached
from msl.tokens import SourceError, Tokens

ROOT = Path(__file__).parent.parent
SCALARS = {"int": "int32_t", "uint": "uint32_t", "float": "float"}
CONSTANTS = {"bool": "bool", "int": "int32_t"}
ALWAYS, COMPUTED = -1, -2  # what an argument depends on, if on no constant
KINDS = {
    **{"Constant<bool>": "Flag", "Constant<int32_t>": "Number", "Input": "Read"},
    **{"Output": "Written", "Words": "Words", "Scalar<int32_t>": "Int"},
    **{"Scalar<uint32_t>": "UInt", "Scalar<float>": "Float"},
}


@dataclass
class Interface:
    """A kernel's function constants and arguments.

    Attributes:
        members: C++ type and index by name, of a word its place.
        names: the kernel's instantiations, each with its most threads per threadgroup, or None.
        constants: names of its function constants.
        arguments: names of its arrays and words, each with the function constant that it depends
            on, with None or, if that is computed, with COMPUTED.
    """

    members: dict[str, tuple[str, int]] = field(default_factory=dict)
    names: dict[str, int | None] = field(default_factory=dict)
    constants: set[str] = field(default_factory=set)
    arguments: dict[str, str | int | None] = field(default_factory=dict)

    def flags_of(self, buffer: str) -> str | None:
        """The function constant that describes the buffer's rows, if there is one."""
        ends = [name for name in self.constants if f"_{name}".endswith(f"_{buffer}_flags")]
        exact = f"{buffer}_flags"
        return exact if exact in ends else ends[0] if len(ends) == 1 else None

    def is_rows(self, name: str) -> bool:
        """Whether it is an array whose rows are read as its flags and layout say."""
        is_input = self.members[name][0] == "Input"
        return is_input and by_value.LAYOUTS in self.members and self.flags_of(name) is not None

    def member(self, name: str) -> str:
        """The declaration of a member."""
        type, index = self.members[name]
        values = str(index)
        flags = self.flags_of(name)
        if flags and type == "Output":
            type, values = "RowsWritten", f"{{{index}}}, {self.members[flags][1]}"
        elif self.is_rows(name):
            type = "Rows"
            values = f"{{{index}}}, {self.members[flags][1]}, {self.members[by_value.LAYOUTS][1]}"
            if condition := self.members.get(self.arguments[name]):
                values += f", {condition[1]}"
        return f"  static constexpr {type} {name}{{{values}}};\n"

    def add(self, kernel: Kernel, name: str, type: str, index: int):
        if self.members.setdefault(name, (type, index)) != (type, index):
            raise SourceError(
                f"{kernel.file}: {name} of kernel {kernel.name} stands for two things"
            )


def type_of(kernel: Kernel, buffer: Parameter) -> str:
    words = buffer.text.split()
    if buffer.address_space == "device":
        return "Input" if "const" in words else "Output"
    if "*" in words:
        return "Words"
    try:
        return f"Scalar<{next(SCALARS[word] for word in words if word in SCALARS)}>"
    except StopIteration:
        raise SourceError(
            f"{kernel.file}: {buffer.name} of kernel {kernel.name} is no array, scalar or words"
        ) from None


def add_interfaces(found: dict[str, Interface], tokens: Tokens, declared: Declarations):
    constants = {c.name: c for c in declared.constants}
    for kernel in {entry.kernel.name: entry.kernel for entry in declared.entries.values()}.values():
        interface = found.setdefault(kernel.name, Interface())
        interface.names |= {
            host: entry.max_threads
            for host, entry in declared.entries.items()
            if entry.kernel is kernel
        }
        for name in reached(tokens, kernel) & constants.keys():
            constant = constants[name]
            if constant.type not in CONSTANTS or not constant.index.isdigit():
                raise SourceError(
                    f"{kernel.file}: function constant {name} of kernel {kernel.name} is no bool"
                    " or int with a number as its index"
                )
            type = f"Constant<{CONSTANTS[constant.type]}>"
            interface.add(kernel, name, type, int(constant.index))
            interface.constants.add(name)
        places = by_value.places_of(kernel)
        for buffer in kernel.parameters:
            if buffer.is_buffer:
                index = places.get(buffer.name, buffer.index)
                interface.add(kernel, buffer.name, type_of(kernel, buffer), index)
                known = buffer.condition is None or buffer.condition in interface.constants
                known &= buffer.name != by_value.LAYOUTS
                interface.arguments[buffer.name] = buffer.condition if known else COMPUTED


def sources(compiler: str, root: Path = ROOT) -> list[Tokens]:
    """The sources in root's folder kernels, each preprocessed for Metal and for CUDA.

    Raises:
        SourceError: If one cannot be read.
    """
    return [
        join.read(path, root, compiler, macros)
        for path in sorted(root.glob("kernels/**/*.metal"))
        for macros in ((), ("__CUDACC__",))
    ]


def interfaces(read: Iterable[Tokens]) -> dict[str, Interface]:
    """The interfaces of all kernels in these sources, by kernel name.

    Raises:
        SourceError: If a kernel's interface cannot be determined.
    """
    found: dict[str, Interface] = {}
    for tokens in read:
        add_interfaces(found, tokens, declarations(tokens))
    return found


def enumerations(read: Iterable[Tokens]) -> dict[str, str]:
    """The declarations of the enumerations in these sources, by their names."""
    found: dict[str, str] = {}
    for tokens in read:
        for i in range(len(tokens)):
            if tokens.is_word(i, "enum"):
                stop = tokens.close(next(k for k in range(i, len(tokens)) if tokens[k] == "{"))
                text = " ".join(tokens[k] for k in tokens.significant(i, stop + 1)) + ";"
                if found.setdefault(tokens[tokens.after(i)], text) != text:
                    raise SourceError(f"{tokens.where(i)}: another {text} stands elsewhere")
    return found


def header(found: dict[str, Interface], enums: Iterable[str]) -> str:
    text = '#pragma once\n\n#include "csrc/gpu/interface.h"\n\nnamespace mlx_norms::kernels {\n\n'
    text += f"constexpr int kWordsIndex = {by_value.BUFFER};\n"
    text += "\n".join(enums) + "\n"
    for name, interface in found.items():
        text += f"\nstruct {name} {{\n"
        for member in sorted(interface.members, key=interface.members.get):
            text += interface.member(member)
        if rows := [name for name in interface.members if interface.is_rows(name)]:
            named = ", ".join(f'{{"{name}", {name}}}' for name in sorted(rows))
            text += f"  static constexpr NamedRows all_rows[]{{{named}}};\n"
        text += "};\n"
    return text + "\n} // namespace mlx_norms::kernels\n"


def source(found: dict[str, Interface]) -> str:
    entries = ""
    for interface in found.values():

        def listed(names: dict[str, str | int | None], of=interface) -> str:
            def entry(name: str, on: str | int | None) -> str:
                type, index = of.members[name]
                condition = (
                    of.members[on][1] if isinstance(on, str) else ALWAYS if on is None else on
                )
                return f'{{{index}, "{name}", Kind::{KINDS[type]}, {condition}}}'

            return ", ".join(entry(name, names[name]) for name in sorted(names))

        names = ", ".join(
            f'{{"{name}", {most or 0}}}' for name, most in sorted(interface.names.items())
        )
        constants = listed(dict.fromkeys(interface.constants))
        entries += f"      {{{{{names}}},\n       {{{constants}}},\n"
        entries += f"       {{{listed(interface.arguments)}}}}},\n"
    return (
        '#include "csrc/gpu/interface.h"\n\nnamespace mlx_norms {\n\n'
        "const std::vector<KernelNeeds>& kernel_needs() {\n"
        "  using Kind = KernelNeeds::Kind;\n"
        f"  static const std::vector<KernelNeeds> needs = {{\n{entries}  }};\n"
        "  return needs;\n}\n\n} // namespace mlx_norms\n"
    )


if __name__ == "__main__":
    compiler, *outputs = sys.argv[1:]
    try:
        read = sources(compiler)
        found = interfaces(read)
        texts = header(found, enumerations(read).values()), source(found)
    except SourceError as error:
        sys.exit(str(error))
    for text, output in zip(texts, map(Path, outputs), strict=True):
        output.parent.mkdir(parents=True, exist_ok=True)
        output.write_text(text)
