"""For those without a Mac: reads all sources with a clang as old as Xcode 15's; holds them to it.

    python tools macos.syntax [ZIGLANG]

By default ziglang 0.11.0, whose clang 16 is as old as that of Xcode 15, the oldest with macOS 14's
SDK. The exit status is 1 if a source is refused, 2 if ziglang cannot be installed.
"""

import json
import os
import shlex
import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from . import mlx_wheel
from .link import MacBuild

# What zig itself tells clang of its libc++ and of Apple's headers.
DEFINED = ("ABI_VERSION=1", "ABI_NAMESPACE=__1", "DISABLE_VISIBILITY_ANNOTATIONS")
DEFINED += ("HARDENING_MODE=_LIBCPP_HARDENING_MODE_NONE", "PSTL_CPU_BACKEND_SERIAL")
HEADERS = ("libcxx/include", "libcxxabi/include", "include", "libc/include/aarch64-macos.13-none")
HEADERS += ("libc/include/any-macos.13-any", "libc/include/any-macos-any")


def install(version: str) -> Path:
    """Where that version of ziglang is, installed there unless it is.

    Raises:
        RuntimeError: If pip cannot install it; the text is pip's.
    """
    folder = mlx_wheel.CACHE / f"ziglang-{version}"
    command = [sys.executable, "-m", "pip", "install", "-q", "--no-deps", "--target", folder]
    if not folder.is_dir():
        done = subprocess.run([*command, f"ziglang=={version}"], capture_output=True, text=True)
        if done.returncode != 0:
            raise RuntimeError(done.stderr)
    return folder


def reading(zig: Path, entry: dict) -> list[str]:
    """The command that only reads the source of an entry of compile_commands.json."""
    library = zig / "ziglang" / "lib"
    command = [sys.executable, "-m", "ziglang", "clang", "-target", "arm64-apple-macos14.0"]
    command += ["-fsyntax-only", "-nostdinc", "-nostdinc++"]
    command += [f"-D_LIBCPP_{name}" for name in DEFINED]
    command += [f"-isystem{library / name}" for name in HEADERS if (library / name).is_dir()]
    arguments = iter(shlex.split(entry["command"])[1:])
    for argument in arguments:
        if argument == "-isystem":
            command += [argument, next(arguments)]
        elif argument.startswith(("-D", "-I", "-std=")):
            command.append(argument)
        elif argument.endswith("cmake_pch.hxx"):
            # Elsewhere: beside it is what the newer clang compiled of it.
            command += ["-include", shutil.copy(argument, entry["directory"])]
    return [*command, entry["file"]]


def main(version: str = "0.11.0") -> int:
    try:
        zig = install(version)
    except RuntimeError as error:
        print(error, file=sys.stderr)
        return 2
    build = MacBuild().build
    subprocess.run(["ninja", "-C", build, "--quiet", "kernel_text.cpp"], check=True)
    listed = subprocess.run(["ninja", "-C", build, "-t", "compdb"], check=True, capture_output=True)
    entries = [
        entry
        for entry in json.loads(listed.stdout)
        if entry["output"].endswith(".o") and "cmake_pch" not in entry["file"]
    ]
    environment = {**os.environ, "PYTHONPATH": str(zig)}  # before the newer one

    def read(entry):
        options = dict(env=environment, cwd=build, capture_output=True, text=True)
        return subprocess.run(reading(zig, entry), **options)

    refused = 0
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        for entry, done in zip(entries, pool.map(read, entries), strict=True):
            if done.returncode != 0:
                refused += 1
                print(f"{entry['file']}:\n{done.stderr}")
    print(f"{len(entries)} sources, {refused} refused by the clang of ziglang {version}")
    return bool(refused)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
