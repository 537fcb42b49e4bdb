"""The command ``info``."""

from __future__ import annotations

import argparse
import platform
import re
import sys
import textwrap
from pathlib import Path

import mlx.core as mx

from .. import _built, _ext, _guard
from . import _json, _kernel_cache

SUMMARY = "Show versions, the backend, and what runs natively here."

_NATIVE = "native kernels"
_COMPOSED = "composed of MLX's operations"
_CPU, _NVIDIA = Path("/proc/cpuinfo"), Path("/proc/driver/nvidia/version")
# csrc/cpu/isa.cpp asks the CPU for the same.
_AVX2 = "avx2 f16c fma"
_AVX512 = f"{_AVX2} avx512f avx512bw avx512dq avx512vl"
_LEVELS = {"avx512bf16": f"{_AVX512} avx512_bf16", "avx512": _AVX512, "avx2": _AVX2, "baseline": ""}

Facts = list[tuple[str, object]]  # a label, and what is printed by str


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declares the arguments of the command."""
    parser.add_argument(
        "--kernels", action="store_true", help="list the GPU kernels of the extension, too"
    )
    _json.add_option(parser)


def run(args: argparse.Namespace) -> int:
    rows = facts()
    width = max(len(label) for label, _ in rows)
    for label, value in rows:
        print(f"{label:{width}}  {value}")
    args.figures["facts"] = by_key(rows)
    if args.kernels:
        built, libraries = _ext.built_kernels(), _ext.built_libraries()
        print("", *kernels(built), sep="\n")
        if libraries:
            print("", *map(library_line, libraries), sep="\n")
        args.figures["kernels"] = [
            {
                "name": name,
                "function_constants": {constant: i for i, constant in constants.items()},
                "on_disk": on_disk,
            }
            for name, constants, on_disk in built
        ]
        args.figures["libraries"] = libraries
    return 0


def library_line(library: dict) -> str:
    """How a Metal library was built, and the compiler's error, if any."""
    state = "is not usable"
    if library["usable"]:
        state = f"{library['form']}, {library['seconds']:.2f} s"
    line = f"library {library['name']}: {state}"
    return "\n".join([line, *(f"    {said}" for said in library["failure"].splitlines())])


def by_key(facts: Facts) -> dict[str, object]:
    """The facts with keys such as ``default_device`` instead of labels, for ``--json``."""
    return {
        label.lower().replace(" ", "_"): value.figures() if hasattr(value, "figures") else value
        for label, value in facts
    }


def facts() -> Facts:
    """The printed facts."""
    return [
        ("mlx_norms", _built.VERSION),
        ("mlx", _guard.installed("mlx").get("mlx", "not installed as a package")),
        ("backend wheel", _backend_wheels()),
        ("built against", f"mlx {_built.MLX_VERSION}, nanobind {_built.NANOBIND_VERSION}"),
        ("extension", _ext.__file__),
        ("extensions for", f"mlx {', '.join(_guard.extensions())}"),
        ("kernels built", ", ".join(_built.BACKENDS)),
        ("this machine has", _machine()),
        *_copies(),
        ("python", f"{platform.python_version()} ({sys.executable})"),
        ("platform", platform.platform()),
        ("default device", _device_name(mx.default_device())),
        ("CPU streams", _norms_on("cpu")),
        ("CPU instructions", _instruction_levels()),
        ("CPU threads", _threads()),
        ("GPU streams", _gpu_streams()),
        ("kernel cache", _kernel_cache_here()),
    ]


def _copies() -> list[tuple[str, str]]:
    """What there is of this package besides the folder of the extension."""
    used = Path(_ext.__file__).parents[1]
    rows = []
    if _guard.PACKAGE != used:
        rows.append(("code", f"{_guard.PACKAGE}, which hides that in {used}"))
    for folder in map(Path, sys.modules["mlx_norms"].__path__):
        if folder != used and any(folder.glob("_mlx_*")):
            rows.append(("not used", str(folder)))
    return rows


def kernels(built: list[tuple[str, dict[int, str], int | None]]) -> list[str]:
    """Lines on the GPU kernels: their names, and below the names that share them, the constants."""
    groups: dict[tuple[tuple[int, str], ...], list[str]] = {}
    for name, constants, on_disk in built:
        kept = f"{name:28}{on_disk} on disk" if on_disk else name
        groups.setdefault(tuple(sorted(constants.items())), []).append(kept)
    lines = [f"{len(built)} GPU kernels: {_whose_kernels()}"]
    for constants, names in groups.items():
        listed = ", ".join(f"{name}({index})" for index, name in constants) or "none"
        lines += ["", *names]
        lines += textwrap.wrap(
            f"function constants: {listed}", 100, initial_indent="  ", subsequent_indent="    "
        )
    return lines


def _whose_kernels() -> str:
    if "cuda" not in _built.BACKENDS:
        return "the functions of the Metal libraries"
    text = "the CUDA texts that the extension carries, compiled when they are first called"
    return text if mx.cuda.is_available() else f"{text} (MLX has no GPU here to run them)"


def _backend_wheels() -> str:
    found = _guard.installed_backends()
    text = ", ".join(f"{name} {version}" for name, version in found.items())
    if len(found) > 1:
        # Both install a libmlx at the same path.
        text += " (one has overwritten the other: uninstall both, then install one)"
    return text or "none installed as a package"


def _device_name(device: mx.Device) -> str:
    return "gpu" if device.type == mx.DeviceType.gpu else "cpu"


def _norms_on(backend: str) -> str:
    return _NATIVE if backend in _built.BACKENDS else _COMPOSED


def _instruction_levels() -> str:
    try:
        level = _ext.cpu_isa()
    except ValueError as error:  # MLX_NORMS_CPU_ISA is not an instruction set of this machine
        return str(error)
    return f"{level} (this build has {', '.join(_ext.cpu_isas())} for this machine)"


def _machine() -> str:
    """What kernels could run here, whatever was built and whichever MLX is installed."""
    found = [f"a CPU with {', '.join(_known_to_the_cpu())}"]
    if sys.platform == "darwin":
        found += ["an Apple GPU"] * (platform.machine() == "arm64")
    elif _NVIDIA.exists():
        found.append("an NVIDIA GPU")
    return ", ".join(found)


def _known_to_the_cpu() -> list[str]:
    """The instruction sets that kernels are written for, of those that Linux names for the CPU."""
    flags = re.search(r"^flags\s*:(.*)$", _CPU.read_text() if _CPU.exists() else "", re.M)
    has = set(flags[1].split()) if flags else set()
    return [name for name, needs in _LEVELS.items() if has.issuperset(needs.split())]


def _threads() -> int | str:
    try:
        return _ext.cpu_threads()
    except ValueError as error:  # MLX_NORMS_CPU_THREADS is not a valid number
        return str(error)


def _gpu_streams() -> str:
    if mx.metal.is_available():
        return _norms_on("metal")
    if mx.cuda.is_available():
        if _ext.has_gpu_kernels():
            return _norms_on("cuda")
        return f"{_COMPOSED}: kernels on CUDA need MLX 0.32.4 or newer"
    return "none (MLX has no GPU here)"


def _kernel_cache_here() -> _kernel_cache.KernelCache | str:
    try:
        return _kernel_cache.find()
    except OSError as error:  # the folder may not be read
        return str(error)
