"""Preprocesses and compiles."""

from __future__ import annotations

import hashlib
import platform
import re
import shutil
import subprocess
from functools import cache
from pathlib import Path

from .cache import cached, directory, temporary_directory

HERE = Path(__file__).resolve().parent
SHIM = HERE / "shim"
RUNTIME = HERE / "runtime"
_RELATIVE = "/@/"  # before names that are no absolute paths, or debug information adds a folder
_RELATIVE_MARKER = re.compile(r'^(# \d+ ")(?![/<])', re.MULTILINE)
_FORBIDDEN = re.compile("attempt to use (?:a poisoned identifier|poisoned)")
_CLANGS = ("clang++", *(f"clang++-{n}" for n in range(22, 15, -1)))
_COMPILERS = (*_CLANGS, "g++")
_HEADERS = (
    *(
        f"metal_{name}"
        for name in (
            "array atomic common compute geometric graphics integer limits logging math matrix"
            " numeric pack quadgroup relational simdgroup simdgroup_matrix stdlib tensor texture"
            " type_traits types"
        ).split()
    ),
    "simd/simd.h",
)
_METAL_DEFINES = ("__METAL__", "__METAL_VERSION__=310", "__METAL_MACOS__", "__HAVE_BFLOAT__")


class CompileError(Exception):
    """A compiler is missing, or it refused the source; has its messages."""


@cache
def find_compiler(wanted: str | None = None) -> str:
    """Path of the compiler that is wanted, or of the first there is, clang++ before g++.

    Raises:
        CompileError: there is none that is new enough.
    """
    for name in (wanted,) if wanted else _COMPILERS:
        path = shutil.which(name)
        if path and _major_version(path) >= (16 if is_clang(path) else 12):
            return path
    raise CompileError(
        f"metalsim needs {wanted or 'a compiler'}: clang++ 16 or later, or g++ 12 or later"
    )


@cache
def is_clang(compiler: str) -> bool:
    return "clang" in _version(compiler)


@cache
def _version(compiler: str) -> str:
    return subprocess.run([compiler, "--version"], capture_output=True, text=True).stdout


def _major_version(compiler: str) -> int:
    match = re.search(r"(?:clang version |\) )(\d+)\.", _version(compiler))
    return int(match[1]) if match else 0


@cache
def _metal_headers() -> Path:
    """Folder of empty files with the names of Metal's headers: the shim has what they declare."""
    folder = directory() / "include"
    for name in _HEADERS:
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    return folder


def preprocess(text: str, name: str, compiler: str, include=(), defines=()) -> str:
    """The text with its includes and macros expanded, as for a Metal compiler.

    Raises:
        CompileError: the preprocessor refuses it.
    """
    folders = (_metal_headers(), *include)
    command = [
        compiler,
        *("-E", "-x", "c++", "-std=c++20", "-nostdinc", "-undef", "-w"),
        *(f"-D{define}" for define in (*_METAL_DEFINES, *defines)),
        *(f"-I{folder}" for folder in folders),
        "-",
    ]
    quoted = name.replace("\\", "\\\\").replace('"', '\\"')
    return _run(command, f'# 1 "{quoted}"\n{text}')


def compile_library(macros: str, cpp: str, compiler: str, checked: bool) -> Path:
    """Path of the shared library of a rewritten source, with the memory checks where wanted.

    Args:
        macros: what is defined before the shim.
        cpp: the source.
        compiler: path of the compiler.
        checked: whether accesses to memory are checked.

    Raises:
        CompileError: the compiler refuses it.
    """
    flags = _kernel_flags(compiler, checked)
    rooted = _RELATIVE_MARKER.sub(rf"\1{_RELATIVE}", cpp)
    source = f'{macros}#include "{SHIM / "metalsim.h"}"\n{rooted}'

    def build(target: Path):
        checks = _checks_object(compiler)
        with temporary_directory() as folder:
            unit, obj = Path(folder, "library.cpp"), Path(folder, "library.o")
            unit.write_text(source)
            _run([compiler, *flags, "-c", str(unit), "-o", str(obj)])
            _run(
                [compiler, "-shared", "-Wl,-Bsymbolic", "-o", str(target), str(obj), str(checks)]
                + ["-lm"]
            )

    key = _key(source, _tree(SHIM), _tree(RUNTIME), _version(compiler), flags)
    return cached(f"library-{key}.so", build)


def original_name(file: str) -> str:
    """Name of a source file as it was given, from one that a compiled library has."""
    return file.removeprefix(_RELATIVE)


def compile_runtime() -> Path:
    """Path of the runtime's shared library, built with the first compiler there is."""
    compiler = find_compiler()
    sources = sorted(str(p) for p in RUNTIME.glob("*.cpp") if p.name != "checks.cpp")
    flags = ["-std=c++20", "-O2", "-g1", "-gdwarf-4", "-fPIC", "-fno-exceptions", "-shared"]

    def build(target: Path):
        _run([compiler, *flags, *sources, "-o", str(target)])

    return cached(f"runtime-{_key(_tree(RUNTIME), _version(compiler), flags)}.so", build)


def _checks_object(compiler: str) -> Path:
    flags = ["-std=c++20", "-O2", "-g1", "-gdwarf-4", "-fPIC", "-fno-exceptions", "-fno-rtti"]

    def build(target: Path):
        _run([compiler, *flags, "-c", str(RUNTIME / "checks.cpp"), "-o", str(target)])

    return cached(f"checks-{_key(_tree(RUNTIME), _version(compiler), flags)}.o", build)


def _kernel_flags(compiler: str, checked: bool) -> list[str]:
    clang = is_clang(compiler)
    flags = [
        *("-std=c++20", "-g1", "-gdwarf-4", "-fPIC", "-w", "-fsigned-char"),
        *("-ffp-contract=off", "-fno-math-errno", "-fno-strict-aliasing", "-fno-exceptions"),
        *("-fno-rtti", "-fno-threadsafe-statics", "-ftrivial-auto-var-init=pattern"),
    ]
    if clang:
        # One rounding an operation on half.
        flags += ["-Xclang", "-ffloat16-excess-precision=none"]
    else:
        # Unique symbols are one variable for all libraries: each would have the others' constants.
        flags += ["-fexcess-precision=16", "-fno-gnu-unique"]
    flags += _processor_flags()
    if not checked:
        return [*flags, "-O2"]
    # No wider access than the source asks for, so that the bytes counted are those requested.
    flags += ["-DMSL_CHECKED", "-O1", "-fno-vectorize" if clang else "-fno-tree-vectorize"]
    flags += ["-fno-slp-vectorize"] if clang else ["-fno-tree-slp-vectorize", "-fno-store-merging"]
    flags += ["-fsanitize=thread", "-fsanitize=alignment"]
    if clang:
        flags += ["-fsanitize=array-bounds,local-bounds", "-fstrict-flex-arrays=3"]
        for option in (
            "enable-tail-merge=0",  # or a trap would stand for several lines
            "tsan-instrument-func-entry-exit=0",
            "tsan-instrument-read-before-write=1",
            "tsan-handle-cxx-exceptions=0",
        ):
            flags += ["-mllvm", f"-{option}"]
    else:
        flags += [
            "-fsanitize=bounds-strict",
            "-fsanitize=object-size",
            "--param=tsan-instrument-func-entry-exit=0",
        ]
    return flags


@cache
def _processor_flags() -> tuple[str, ...]:
    """Options for the conversions of half and for fused multiply-adds, where the CPU has them."""
    if platform.machine() != "x86_64":
        return ()
    have = Path("/proc/cpuinfo").read_text().split()
    return tuple(f"-m{name}" for name in ("avx2", "fma", "f16c") if name in have)


@cache
def _tree(folder: Path) -> str:
    """Digest of the files in a folder."""
    return _key(*((p.name, p.read_text()) for p in sorted(folder.iterdir()) if p.is_file()))


def _key(*parts) -> str:
    return hashlib.sha256(repr(parts).encode()).hexdigest()[:24]


def _run(command: list[str], text: str | None = None) -> str:
    done = subprocess.run(command, input=text, capture_output=True, text=True)
    if done.returncode:
        messages = done.stderr[:8000].replace(_RELATIVE, "")
        messages = _FORBIDDEN.sub("Metal's language has no such word", messages)
        raise CompileError(f"{Path(command[0]).name} refuses the source\n{messages}")
    return done.stdout
