"""Builds the extension for macOS and links it to MLX's own libmlx.dylib, on any machine.

    python tests/macos_link.py

The compiler is PyPI's ziglang. A symbol that libmlx.dylib does not export fails the link. What of
Apple's frameworks and of Python the link needs stands in stub libraries that only list symbols.
"""

import fcntl
import hashlib
import importlib.util
import shutil
import subprocess
import sys
import sysconfig
from contextlib import contextmanager
from pathlib import Path

import nanobind

import macos_wheel

ROOT = Path(__file__).parent.parent
HEADERS = Path(__file__).parent / "hostmetal" / "include_frameworks"

# MLX's CMake package names these. Foundation re-exports the Objective-C runtime.
FRAMEWORKS = {
    "Accelerate": [],
    "Foundation": ["_objc_getProtocol", "_objc_lookUpClass", "_objc_msgSend", "_sel_registerName"],
    "Metal": [],
    "QuartzCore": [],
}

# Zig takes neither bundles nor lists of symbols that may stay undefined, which nanobind has for
# Python's; and there is no Xcode to take frameworks from.
DRIVER = """#!/bin/sh
for argument do
  shift
  case $argument in
    -bundle) argument=-shared ;;
    -Wl,@*-cpython.sym) argument={stubs}/libpython.tbd ;;
    -F/Applications/*) argument=-F{stubs} ;;
  esac
  set -- "$@" "$argument"
done
exec {python} -m ziglang {tool} "$@"
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
set(CMAKE_CXX_FLAGS_INIT "-I{headers}")
"""


class MacBuild:
    """The production build, configured for an arm64 Mac.

    Args:
        directory: Where build files go; reused by the next build there. None: build/macos in
            the checkout.

    Raises:
        RuntimeError: If ziglang is not installed.
    """

    def __init__(self, directory: Path | None = None):
        if importlib.util.find_spec("ziglang") is None:
            raise RuntimeError("the macOS build needs zig as a compiler: pip install ziglang")
        mlx = macos_wheel.fetch()
        key = hashlib.sha256(f"{sys.executable} {mlx}".encode()).hexdigest()[:12]
        self.build = (directory or ROOT / "build" / "macos") / key
        self.build.mkdir(parents=True, exist_ok=True)
        with self._lock():
            toolchain = self._write_tools()
            if not (self.build / "build.ninja").exists():
                command = ["cmake", "-S", ROOT, "-B", self.build, "-GNinja"]
                command += [
                    f"-DCMAKE_TOOLCHAIN_FILE={toolchain}",
                    f"-DPython_EXECUTABLE={sys.executable}",
                    f"-DPython_INCLUDE_DIR={self._python_headers()}",
                    f"-DMLX_ROOT={mlx}",
                    f"-DMLX_DIR={mlx}/share/cmake/MLX",
                    # What is asked is whether it links, which takes no optimiser. Zig sanitizes
                    # where there is none.
                    "-DCMAKE_CXX_FLAGS_RELEASE=-O0 -g0 -DNDEBUG -fno-sanitize=undefined",
                ]
                _run(command)

    def link(self) -> Path:
        """Builds and links the extension; returns its file.

        Raises:
            RuntimeError: If it does not compile or link; the text is the compiler's.
        """
        with self._lock():
            _run(["cmake", "--build", self.build, "--target", "_ext"])
        return next(self.build.glob("_ext*.so"))

    def link_with(self, source: str, output: Path) -> None:
        """Links the extension once more, with one more C++ source, to `output`; raises as link."""
        module = self.link().name
        added, compiled = output.with_suffix(".cpp"), output.with_suffix(".o")
        added.write_text(source)
        ninja = ["ninja", "-C", self.build, "-t", "commands", "_ext"]
        commands = subprocess.run(ninja, check=True, capture_output=True, text=True).stdout
        *compiling, linking = commands.splitlines()
        like = next(command for command in compiling if "/csrc/bindings.cpp.o" in command)
        like, _ = like.split(" -MD ")
        linking = linking.removeprefix(": && ").removesuffix(" && :")
        linking = linking.replace(f"-o {module}", f"-o {output} {compiled}")
        _run(["sh", "-c", f"{like} -o {compiled} -c {added}"], cwd=self.build)
        _run(["sh", "-c", linking], cwd=self.build)

    def _python_headers(self) -> Path:
        """Python's headers. Debian's pyconfig.h knows Debian alone and includes the machine's."""
        headers = Path(sysconfig.get_path("include"))
        machine = sysconfig.get_config_var("MULTIARCH") or ""
        of_machine = headers.parent / machine / headers.name / "pyconfig.h"
        if of_machine.parent == headers or not of_machine.exists():
            return headers
        copied = self.build / "python"
        shutil.copytree(headers, copied, dirs_exist_ok=True)
        shutil.copy(of_machine, copied)
        return copied

    def _write_tools(self) -> Path:
        """Writes stubs, compiler drivers and CMake's toolchain file; returns the last."""
        tools, stubs = self.build / "tools", self.build / "stubs"
        tools.mkdir(exist_ok=True)
        stubs.mkdir(exist_ok=True)
        for name, symbols in FRAMEWORKS.items():
            framework = stubs / f"{name}.framework"
            framework.mkdir(exist_ok=True)
            path = f"/System/Library/Frameworks/{name}.framework/{name}"
            _write(framework / f"{name}.tbd", stub(path, symbols))
        listed = Path(nanobind.cmake_dir()) / "darwin-ld-cpython.sym"
        symbols = [line.removeprefix("-U ") for line in listed.read_text().splitlines() if line]
        _write(stubs / "libpython.tbd", stub("@rpath/libpython.dylib", symbols))

        target = "-target aarch64-macos.14.0"
        for name in ("cc", "c++", "ar", "ranlib"):
            tool = name if name in ("ar", "ranlib") else f"{name} {target}"
            text = DRIVER.format(python=sys.executable, tool=tool, stubs=stubs)
            _write(tools / name, text)
            (tools / name).chmod(0o755)
        toolchain = tools / "toolchain.cmake"
        _write(toolchain, TOOLCHAIN.format(tools=tools, headers=HEADERS))
        return toolchain

    @contextmanager
    def _lock(self):
        """Held while it builds: test processes that run in parallel share the build."""
        with open(self.build / "lock", "w") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            yield


def stub(install_name: str, symbols: list[str]) -> str:
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


def _write(path: Path, text: str) -> None:
    """Writes a file if it has another text: what depends on it is built again then."""
    if not path.exists() or path.read_text() != text:
        path.write_text(text)


def _run(command, **options) -> None:
    done = subprocess.run(command, capture_output=True, text=True, **options)
    if done.returncode != 0:
        raise RuntimeError(done.stdout + done.stderr)


if __name__ == "__main__":
    file = MacBuild().link()
    print(f"{file}: {file.stat().st_size} bytes, linked to {macos_wheel.fetch()}/lib/libmlx.dylib")
