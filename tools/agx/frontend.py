"""C++ for OpenCL to SPIR-V, by clang and llvm-spirv."""

from __future__ import annotations

import itertools
import re
from pathlib import Path

from .packages import Tree

_LLVM = "usr/lib/llvm-19/bin"
_CLANG = f"{_LLVM}/clang"
_VECTORS_BY_ONE = re.compile(
    r"^  (?P<value>%\S+) = select (?P<flags>(?:[a-z]+ )*)i1 (?P<condition>\S+), <(?P<size>\d+) x ",
    re.M,
)
_RESOURCES = "usr/lib/llvm-19/lib/clang/19"
_TEXT = ("-x", "clcpp", "-cl-std=CLC++2021", "-finclude-default-header")
_TEXT += ("-fdeclare-opencl-builtins",)
# LLVM threads no jumps for a GPU, whose threads diverge; of SPIR it does not know that.
_PASSES = ("-inline-threshold=1000000", "-jump-threading-threshold=0")
# -O1 gives SPIR-V that Mesa refuses; -O3 leaves vectors of 16-bit elements in memory.
_OPTIMIZED = ("-O2", *(word for option in _PASSES for word in ("-mllvm", option)))
IN_MEMORY = "private arrays left in memory"


class Refused(Exception):
    """A kernel that the chain does not take, or whose figures would not count; says why."""


def optimized(tree: Tree, source: Path) -> Path:
    """LLVM's assembly of a text of opencl.translate, beside it, in which function constants are
    loaded: so Metal has a library.

    Raises:
        Refused: it does not compile, or has private arrays in memory. Whether the driver, which
            knows the constants, takes them out is not known here.
    """
    assembly = source.with_suffix(".ll")
    _clang(tree, source, assembly, *_TEXT, *_OPTIMIZED)
    if reason := in_memory(assembly.read_text()):
        raise Refused(f"{reason} while function constants are not known")
    return assembly


def specialized(tree: Tree, source: Path, macros: list[str], to: Path) -> Path:
    """The SPIR-V of a text that `optimized` has compiled, with values for its function constants:
    as Metal's driver makes a pipeline of a library.

    Args:
        tree: the compilers.
        source: the text.
        macros: the values, as OpenCL.macros defines them.
        to: where it goes; other files are beside it.

    Raises:
        Refused: as of assemble.
    """
    names = ("constants", "linked", "kernel")
    constants, linked, assembly = (to.with_suffix(f".{name}.ll") for name in names)
    _clang(tree, source, constants, *_TEXT, *macros)
    try:
        # With the constants as the kernel's own, which are else kept.
        files = source.with_suffix(".ll"), constants
        tree.run(f"{_LLVM}/llvm-link", "-internalize", *files, "-S", "-o", linked)
    except RuntimeError as error:
        raise Refused(f"llvm-link: {_first_error(str(error))}") from None
    _clang(tree, linked, assembly, "-x", "ir", *_OPTIMIZED)  # opt would vectorize loops, too
    return assemble(tree, assembly)


def _clang(tree: Tree, source: Path, to: Path, *more: str) -> None:
    resources = tree.root / _RESOURCES
    options = ["-cc1", "-triple", "spir64-unknown-unknown", "-emit-llvm", *more]
    options += ["-resource-dir", str(resources), "-internal-isystem", f"{resources}/include"]
    try:
        tree.run(_CLANG, *options, "-o", to, source)
    except RuntimeError as error:
        raise Refused(f"clang: {_first_error(str(error))}") from None


def assemble(tree: Tree, assembly: Path) -> Path:
    """The SPIR-V of LLVM's assembly, of which it is checked that it is what the kernel says.

    Raises:
        Refused: it is not translated, or its private arrays would be in memory.
    """
    text = assembly.read_text()
    if reason := doubtful(text):
        raise Refused(reason)
    # With the version of C++ in it llvm-spirv leaves OpenCL's functions as calls.
    text = re.sub(r"^!opencl\.cxx\.version.*\n", "", text, flags=re.M)
    assembly.write_text(whole_conditions(text))
    bitcode, spirv = assembly.with_suffix(".bc"), assembly.with_suffix(".spv")
    try:
        tree.run("usr/lib/llvm-19/bin/llvm-as", assembly, "-o", bitcode)
        tree.run("usr/bin/llvm-spirv-19", "--spirv-max-version=1.3", bitcode, "-o", spirv)
    except RuntimeError as error:
        raise Refused(f"llvm-spirv: {_first_error(str(error))}") from None
    return spirv


def doubtful(assembly: str) -> str | None:
    """Why figures of this assembly would tell of the front end, not of the kernel."""
    if reason := in_memory(assembly):
        return reason
    if re.search(r"^[^!\n\"]*\bbfloat\b", assembly, re.M):
        return "bfloat, which llvm-spirv takes for half"
    return None


def in_memory(assembly: str) -> str | None:
    """Which private arrays are not in registers."""
    allocas = len(re.findall(r"^\s+%\S+ = alloca ", assembly, re.M))
    generic = assembly.count("addrspace(4)")
    return f"{IN_MEMORY} (allocas {allocas}, generic {generic})" if allocas or generic else None


def whole_conditions(assembly: str) -> str:
    """The same with a condition for each element of a vector, as SPIR-V 1.3 has it."""
    numbers = itertools.count()

    def splat(found) -> str:
        value, condition, size = found["value"], found["condition"], found["size"]
        one, all = (f"%condition.{next(numbers)}" for _ in range(2))
        return (
            f"  {one} = insertelement <{size} x i1> poison, i1 {condition}, i64 0\n"
            f"  {all} = shufflevector <{size} x i1> {one}, <{size} x i1> poison,"
            f" <{size} x i32> zeroinitializer\n"
            f"  {value} = select {found['flags']}<{size} x i1> {all}, <{size} x "
        )

    return _VECTORS_BY_ONE.sub(splat, assembly)


def _first_error(text: str) -> str:
    lines = text.splitlines() or ["?"]
    line = next((line for line in lines if "error" in line.lower()), lines[0])
    return re.sub(r"^.*?error: ", "", line)[:200]
