"""C++ for OpenCL to SPIR-V, by clang and llvm-spirv."""

from __future__ import annotations

import itertools
import re
from pathlib import Path

from .packages import Tree

CLANG = "usr/lib/llvm-19/bin/clang"
_VECTORS_BY_ONE = re.compile(
    r"^  (?P<value>%\S+) = select (?P<flags>(?:[a-z]+ )*)i1 (?P<condition>\S+), <(?P<size>\d+) x ",
    re.M,
)
_RESOURCES = "usr/lib/llvm-19/lib/clang/19"


class Refused(Exception):
    """A kernel that the chain does not take, or whose figures would not count; says why."""


def to_spirv(tree: Tree, source: Path) -> Path:
    """Compiles a text of opencl.translate; returns the SPIR-V, beside it.

    Raises:
        Refused: it does not compile, or its private arrays would be in memory.
    """
    assembly = source.with_suffix(".ll")
    resources = tree.root / _RESOURCES
    options = ["-cc1", "-x", "clcpp", "-cl-std=CLC++2021", "-triple", "spir64-unknown-unknown"]
    # -O1 gives SPIR-V that Mesa refuses; -O3 leaves vectors of 16-bit elements in memory.
    options += ["-O2", "-finclude-default-header", "-fdeclare-opencl-builtins"]
    options += ["-resource-dir", str(resources), "-internal-isystem", f"{resources}/include"]
    options += ["-mllvm", "-inline-threshold=1000000"]
    try:
        tree.run(CLANG, *options, "-emit-llvm", "-o", assembly, source)
    except RuntimeError as error:
        raise Refused(f"clang: {first_error(str(error))}") from None
    return assemble(tree, assembly)


def assemble(tree: Tree, assembly: Path) -> Path:
    """The SPIR-V of LLVM's assembly, of which it is checked that it is what the kernel says.

    Raises:
        Refused: as of to_spirv.
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
        raise Refused(f"llvm-spirv: {first_error(str(error))}") from None
    return spirv


def doubtful(assembly: str) -> str | None:
    """Why figures of this assembly would tell of the front end, not of the kernel."""
    allocas = len(re.findall(r"^\s+%\S+ = alloca ", assembly, re.M))
    generic = assembly.count("addrspace(4)")
    if allocas or generic:
        return f"private arrays left in memory (allocas {allocas}, generic {generic})"
    if re.search(r"^[^!\n\"]*\bbfloat\b", assembly, re.M):
        return "bfloat, which llvm-spirv takes for half"
    return None


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


def first_error(text: str) -> str:
    lines = text.splitlines() or ["?"]
    line = next((line for line in lines if "error" in line.lower()), lines[0])
    return re.sub(r"^.*?error: ", "", line)[:200]
