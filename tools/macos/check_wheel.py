"""For who releases: checks a wheel for Apple silicon without a Mac; holds tag, signature, symbols.

    PYTHON tools macos.check_wheel WHEEL

PYTHON is of the version that the wheel is for. What the extension imports must be in the
libmlx.dylib of each macOS that MLX has wheels for, in Python, or in the system's stubs: zig's of
libSystem, and for the rest what MLX itself imports there (tools/macos/symbols.py). Exits with 1 if
something is wrong.

Needs macholib, packaging, pyyaml and ziglang.
"""

import ast
import ctypes
import email
import hashlib
import importlib.util
import re
import struct
import sys
import tempfile
import zipfile
from collections.abc import Iterable, Iterator
from pathlib import Path

import yaml
from macholib import mach_o
from macholib.MachO import MachO
from packaging.utils import parse_wheel_filename

import join
from mlx_versions import NANOBIND, NEWEST, folder

from . import mlx_wheel
from . import symbols as mach_o_symbols

ROOT = Path(__file__).parents[2]


OLDEST = (mlx_wheel.MACOS[0], 0)
LIBMLX, LIBSYSTEM = "@rpath/libmlx.dylib", "/usr/lib/libSystem.B.dylib"
LIBOBJC = "/usr/lib/libobjc.A.dylib"  # which Foundation re-exports
ARM64, PLATFORM_MACOS = 0x0100000C, 1
# "v19_system_libcpp_abi1"; from nanobind 3 on, "nanobind_system_libcpp_abi1_a1_v22".
NANOBIND_ABI = re.compile(rb"\0((?:nanobind|v\d+)_\w*libcpp\w*)\0")
RPATHS = ["@loader_path", "@loader_path/..", "@loader_path/../../mlx/lib"]
PYTHON = f"cp3{sys.version_info.minor}"
EXTENSION = f"_ext.cpython-3{sys.version_info.minor}-darwin.so"


def releases(wheel: Path) -> list[str]:
    """The releases of MLX that the wheel has an extension for."""
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
    return [mlx for mlx in NANOBIND if f"mlx_norms/{folder(mlx)}/{EXTENSION}" in names]


def package(wheel: Path) -> Iterator[str]:
    """What is wrong with the wheel's tag and its files."""
    _, version, _, tags = parse_wheel_filename(wheel.name)
    tag = f"{PYTHON}-{PYTHON}-macosx_{OLDEST[0]}_{OLDEST[1]}_arm64"
    if [*map(str, tags)] != [tag]:
        yield f"its tag is not {tag}"
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
        info = email.message_from_bytes(archive.read(f"mlx_norms-{version}.dist-info/WHEEL"))
        built = {
            mlx: ast.parse(archive.read(f"mlx_norms/{folder(mlx)}/_built.py"))
            for mlx in releases(wheel)
        }
    if info.get_all("Tag") != [tag]:
        yield f"its WHEEL file says {info.get_all('Tag')}"
    extensions = {f"mlx_norms/{folder(mlx)}/{EXTENSION}" for mlx in built}
    if binaries := {n for n in names if n.endswith((".so", ".dylib", ".metallib"))} - extensions:
        yield f"it has {', '.join(sorted(binaries))}"
    if not extensions:
        yield f"it lacks mlx_norms/{folder(NEWEST)}/{EXTENSION}"
    for needed in ("mlx_norms/_ext.pyi", "mlx_norms/py.typed"):
        if needed not in names:
            yield f"it lacks {needed}"
    for mlx, module in built.items():
        values = {
            node.targets[0].id: ast.literal_eval(node.value)
            for node in module.body
            if isinstance(node, ast.Assign)
        }
        wanted = dict(VERSION=str(version), MLX_VERSION=mlx, FLOAT_TYPES=values["FLOAT_TYPES"])
        wanted |= dict(BACKENDS=("cpu", "metal"), NANOBIND_VERSION=values["NANOBIND_VERSION"])
        if values != wanted:
            yield f"mlx_norms/{folder(mlx)}/_built.py has {values}"


def commands(file: Path, mlx: str = NEWEST) -> Iterator[str]:
    """What is wrong with the processor, the oldest system, and where libraries are looked for."""
    (header,) = MachO(str(file)).headers
    if header.header.cputype != ARM64:
        yield "it is not for arm64"
    rpaths, versions = [], []
    for load, command, data in header.commands:
        if load.cmd == mach_o.LC_RPATH:
            rpaths.append(data.rstrip(b"\0").decode())
        elif load.cmd == mach_o.LC_BUILD_VERSION:
            versions.append((command.platform, command.minos >> 16, command.minos >> 8 & 0xFF))
    if rpaths != RPATHS:
        yield f"its rpaths are {rpaths}"
    if versions != [(PLATFORM_MACOS, *OLDEST)]:
        yield f"it is built for {versions}"
    loaded = mach_o_symbols.libraries(file)
    if LIBMLX not in loaded:
        yield "it does not load libmlx.dylib"
    for name in loaded:
        if name != LIBMLX and not name.startswith(("/usr/lib/", "/System/Library/")):
            yield f"it loads {name}"


def signature(file: Path, mlx: str = NEWEST) -> Iterator[str]:
    """What is wrong with the code signature, without which arm64 loads nothing."""
    (header,) = MachO(str(file)).headers
    found = [c for load, c, _ in header.commands if load.cmd == mach_o.LC_CODE_SIGNATURE]
    if not found:
        yield "it has no code signature"
        return
    content = file.read_bytes()
    blob = content[found[0].dataoff :]
    magic, _, count = struct.unpack_from(">3I", blob)
    places = [struct.unpack_from(">2I", blob, 12 + 8 * i) for i in range(count)]
    directories = [blob[start:] for kind, start in places if kind == 0]
    if magic != 0xFADE0CC0 or not directories:
        yield "its code signature has no code directory"
        return
    fields = struct.unpack_from(">9I4B", directories[0])
    _, _, _, flags, hashes, _, _, pages, limit, size, kind, _, page = fields
    if not flags & 0x2:
        yield "its code signature is not ad hoc"
    if kind != 2 or size != 32:
        yield "its code signature is not of SHA-256"
    for i in range(pages):
        begin, end = i << page, min(i + 1 << page, limit)
        digest = directories[0][hashes + i * size : hashes + (i + 1) * size]
        if hashlib.sha256(content[begin:end]).digest() != digest:
            yield f"its code signature is not of its bytes {begin} to {end}"
    if pages << page < limit or limit != found[0].dataoff:
        yield "its code signature is not of all of it"


def texts(file: Path, mlx: str = NEWEST) -> Iterator[str]:
    """Which kernels' texts are not in it."""
    content = file.read_bytes()
    for name, text in join.texts().items():
        if text.encode() not in content:
            yield f"it has not the text of {name}"


def bindings(file: Path, mlx: str = NEWEST) -> Iterator[str]:
    """Whether it would take MLX's arrays: whether nanobind's ABI is that of MLX's extension."""
    files = (file, mlx_wheel.fetch_bindings(OLDEST[0], mlx))
    ours, theirs = (set(NANOBIND_ABI.findall(path.read_bytes())) for path in files)
    if not ours or ours != theirs:
        yield f"its ABI of nanobind is {ours}, that of MLX {theirs}"


def libsystem() -> set[str]:
    """The symbols of libSystem, by the stub that zig links to."""
    (folder,) = importlib.util.find_spec("ziglang").submodule_search_locations

    class Loader(yaml.SafeLoader):
        pass

    Loader.add_constructor("!tapi-tbd", Loader.construct_yaml_map)
    stubs = Path(folder, "lib", "libc", "darwin", "libSystem.tbd").read_text()
    return {
        name
        for document in yaml.load_all(stubs, Loader)
        for part in document.get("exports", []) + document.get("reexports", [])
        if {"arm64-macos", "arm64e-macos"}.intersection(part["targets"])
        for kind in ("symbols", "weak-symbols", "thread-local-symbols")
        for name in part.get(kind, [])
    }


def symbols(
    file: Path, mlx: str = NEWEST, systems: Iterable[int] = mlx_wheel.MACOS
) -> Iterator[str]:
    """What it imports that one of these systems has not."""
    system = libsystem()
    for macos in systems:
        libmlx = mlx_wheel.fetch(macos, mlx) / "lib" / "libmlx.dylib"
        known = {LIBMLX: mach_o_symbols.exports(libmlx), LIBSYSTEM: system}
        known[mach_o_symbols.LIBCXX] = mach_o_symbols.libcxx(macos)
        of_mlx = mach_o_symbols.imports(libmlx)
        for name, library in mach_o_symbols.imports(file).items():
            if library in mach_o_symbols.ANYWHERE.values():
                good = name.startswith(("_Py", "__Py")) and hasattr(ctypes.pythonapi, name[1:])
            elif library in known:
                good = name in known[library]
            else:
                good = of_mlx.get(name) in (library, LIBOBJC)
            if not good:
                yield f"macOS {macos} has no {name} of {library}"


def main() -> int:
    (wheel,) = map(Path, sys.argv[1:])
    problems = [*package(wheel)]
    with tempfile.TemporaryDirectory() as directory, zipfile.ZipFile(wheel) as archive:
        for mlx in releases(wheel):
            file = Path(archive.extract(f"mlx_norms/{folder(mlx)}/{EXTENSION}", directory))
            for check in (commands, signature, texts, bindings, symbols):
                problems += [f"for mlx {mlx}: {problem}" for problem in check(file, mlx)]
    print(f"{wheel.name}: {len(problems)} problems", *problems, sep="\n  ")
    return bool(problems)


if __name__ == "__main__":
    sys.exit(main())
