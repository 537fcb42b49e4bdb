"""What CMake needs to build the extension for macOS anywhere: zig as compiler, stubs to link to."""

import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Iterable
from pathlib import Path

import nanobind

HEADERS = Path(__file__).parents[1] / "hostmetal" / "include_frameworks"

# MLX's CMake package names these. Foundation re-exports the Objective-C runtime.
FRAMEWORKS = {
    "Versions/A/Accelerate": [],
    "Versions/C/Foundation": [
        *("_objc_getProtocol", "_objc_lookUpClass", "_objc_msgSend", "_sel_registerName")
    ],
    "Versions/A/Metal": [],
    "Versions/A/QuartzCore": [],
}

# Zig takes neither bundles nor lists of symbols that may stay undefined, which nanobind has for
# Python's; and there is no Xcode to take frameworks from.
DRIVER = """#!/bin/sh
tool='{compile}'
for argument do
  shift
  case $argument in
    -bundle) argument=-shared tool='{link}' ;;
    -Wl,@*-cpython.sym) argument={stub} ;;
    -F/Applications/*) argument=-F{stubs} ;;
  esac
  set -- "$@" "$argument"
done
exec {python} -m ziglang $tool "$@"
"""

TOOLCHAIN = """
set(CMAKE_SYSTEM_NAME Darwin)
set(CMAKE_SYSTEM_PROCESSOR arm64)
set(CMAKE_C_COMPILER {tools}/cc)
set(CMAKE_CXX_COMPILER {tools}/c++)
set(CMAKE_AR {tools}/ar)
set(CMAKE_RANLIB {tools}/ranlib)
set(CMAKE_INSTALL_NAME_TOOL true)
set(CMAKE_OSX_SYSROOT "")
set(CMAKE_CXX_FLAGS_INIT "-I{headers} {flags}")
"""

# Python's public headers use these of pyconfig.h, which are not the same on x86-64 Linux.
PYCONFIG = """
#undef HAVE_GCC_ASM_FOR_X64
#undef HAVE_GCC_ASM_FOR_X87
#undef ALIGNOF_MAX_ALIGN_T
#define ALIGNOF_MAX_ALIGN_T 8
#undef SIZEOF_LONG_DOUBLE
#define SIZEOF_LONG_DOUBLE 8
"""
SIZES = [
    "#include <pyconfig.h>\n#include <pthread.h>\n#include <stddef.h>\n#include <stdint.h>\n",
    "#include <sys/types.h>\n#include <time.h>\n#include <wchar.h>\n",
    "#define CHECK(macro, ...) _Static_assert(macro == sizeof(__VA_ARGS__), #macro);\n",
    '_Static_assert(ALIGNOF_MAX_ALIGN_T == _Alignof(max_align_t), "ALIGNOF_MAX_ALIGN_T");\n',
]
TYPES = [
    *(("SIZEOF_INT", "int"), ("SIZEOF_LONG", "long"), ("SIZEOF_LONG_LONG", "long long")),
    *(("SIZEOF_LONG_DOUBLE", "long double"), ("SIZEOF_PID_T", "pid_t")),
    *(("SIZEOF_PTHREAD_T", "pthread_t"), ("SIZEOF_SIZE_T", "size_t"), ("SIZEOF_TIME_T", "time_t")),
    *(("SIZEOF_UINTPTR_T", "uintptr_t"), ("SIZEOF_VOID_P", "void*"), ("SIZEOF__BOOL", "_Bool")),
    ("SIZEOF_WCHAR_T", "wchar_t"),
]


def write(folder: Path, macos: int, libcxx: Iterable[str] = ()) -> Path:
    """Writes stubs, compiler drivers and CMake's toolchain file; returns the last.

    Args:
        folder: Where they go.
        macos: The oldest system that is built for.
        libcxx: Symbols of the system's libc++, which is linked to then, as it must be for
            exceptions to pass between the extension and MLX. Python's symbols are looked up at run
            time. Without it nothing is to run: zig's own libc++ is linked in, and a stub of Python.
    """
    tools, stubs = folder / "tools", folder / "stubs"
    for directory in (tools, stubs):
        directory.mkdir(exist_ok=True)
    for path, symbols in FRAMEWORKS.items():
        framework = f"{Path(path).name}.framework"
        (stubs / framework).mkdir(exist_ok=True)
        install_name = f"/System/Library/Frameworks/{framework}/{path}"
        write_if_new(stubs / framework / f"{Path(path).name}.tbd", stub(install_name, symbols))

    target, flags = f"-target aarch64-macos.{macos}.0", ""
    if libcxx:
        linked = stubs / "libcxx.tbd"
        write_if_new(linked, stub("/usr/lib/libc++.1.dylib", libcxx))
        link = f"cc {target} -Wl,-undefined,dynamic_lookup"
        # Only what the libc++ of that system has.
        name = "_LIBCPP_HAS_VENDOR_AVAILABILITY_ANNOTATIONS"
        flags = f"-U{name} -D{name}=1"
    else:
        linked = stubs / "libpython.tbd"
        listed = Path(nanobind.cmake_dir()) / "darwin-ld-cpython.sym"
        symbols = [line.removeprefix("-U ") for line in listed.read_text().splitlines() if line]
        write_if_new(linked, stub("@rpath/libpython.dylib", symbols))
        link = f"c++ {target}"

    for name in ("cc", "c++", "ar", "ranlib"):
        tool = name if name in ("ar", "ranlib") else f"{name} {target}"
        fields = dict(python=sys.executable, stubs=stubs, stub=linked, compile=tool, link=link)
        write_if_new(tools / name, DRIVER.format(**fields))
        (tools / name).chmod(0o755)
    toolchain = tools / "toolchain.cmake"
    write_if_new(toolchain, TOOLCHAIN.format(tools=tools, headers=HEADERS, flags=flags))
    return toolchain


def stub(install_name: str, symbols: Iterable[str]) -> str:
    """The text of a stub library (.tbd) with these symbols."""
    exports = f"""exports:
  - targets: [ arm64-macos ]
    symbols: [ {", ".join(symbols)} ]
"""
    return f"""--- !tapi-tbd
tbd-version: 4
targets: [ arm64-macos ]
install-name: '{install_name}'
{exports if symbols else ""}...
"""


def python_headers(folder: Path) -> Path:
    """Copies Python's headers, with a pyconfig.h for an arm64 Mac; returns where they are."""
    headers = Path(sysconfig.get_path("include"))
    # Debian's knows Debian alone and includes that of the machine.
    machine = sysconfig.get_config_var("MULTIARCH") or ""
    of_machine = headers.parent / machine / headers.name / "pyconfig.h"
    config = of_machine if of_machine.exists() else headers / "pyconfig.h"
    copied = folder / "python"
    ignored = shutil.ignore_patterns("pyconfig.h")
    shutil.copytree(headers, copied, ignore=ignored, dirs_exist_ok=True)
    write_if_new(copied / "pyconfig.h", config.read_text() + PYCONFIG)
    return copied


def check_python_headers(headers: Path, folder: Path) -> None:
    """Compiles assertions that the sizes in pyconfig.h are the compiler's, in what `write` wrote.

    Raises:
        subprocess.CalledProcessError: If one is not.
    """
    source = folder / "pyconfig.c"
    source.write_text("".join(SIZES + [f"CHECK({macro}, {type})\n" for macro, type in TYPES]))
    command = [folder / "tools" / "cc", f"-I{headers}", "-c", source, "-o", folder / "pyconfig.o"]
    subprocess.run(command, check=True)


def write_if_new(path: Path, text: str) -> None:
    """Writes a file if it has another text: what depends on it is built again then."""
    if not path.exists() or path.read_text() != text:
        path.write_text(text)
