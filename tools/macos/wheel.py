"""For who releases: builds the wheel for Apple silicon on any machine, by zig, for this Python.

    PYTHON tools macos.wheel [--mlx RELEASE] [--outdir DIR] [--stub FILE]

The build is that of a Mac without Xcode: it has the text of the kernels. It is for macOS 14 and
newer, as MLX's wheels are. tools/macos/check_wheel.py checks it; nobody has loaded one on a Mac.

It is for one release of MLX, whose nanobind this Python has; tools/merge_wheels.py makes one of
several. Needs cmake, macholib, nanobind, ninja, scikit-build-core and ziglang. The headers are
those of this Python, with pyconfig.h mended and checked for an arm64 Mac
(tools/macos/toolchain.py). The stub file is that of a build for this machine, of any Python: it is
written by importing the extension.
"""

import argparse
import importlib.util
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

from mlx_versions import NEWEST

from . import mlx_wheel, symbols, toolchain

ROOT = Path(__file__).parents[2]
OLDEST = mlx_wheel.MACOS[0]


def build(outdir: Path, stub: Path, directory: Path, mlx: str) -> None:
    """Builds the wheel.

    Args:
        outdir: Where it goes.
        stub: The extension's stub file.
        directory: Where build files go.
        mlx: The release of MLX.

    Raises:
        subprocess.CalledProcessError: If it does not build, or Python's headers are wrong on a Mac.
    """
    cmake = directory / "cmake"
    cmake.mkdir()
    cmake.joinpath("_ext.pyi").write_text(stub.read_text())
    root = mlx_wheel.fetch(OLDEST, mlx)
    file = toolchain.write(directory, OLDEST, symbols.libcxx(OLDEST))
    headers = toolchain.python_headers(directory)
    toolchain.check_python_headers(headers, directory)
    defines = {
        "CMAKE_TOOLCHAIN_FILE": file,
        "CMAKE_BUILD_WITH_INSTALL_RPATH": "ON",  # there is no install_name_tool
        "MLX_DIR": root / "share" / "cmake" / "MLX",
        "MLX_ROOT": root,
        "Python_INCLUDE_DIR": headers,
    }
    settings = {f"cmake.define.{name}": str(value) for name, value in defines.items()}
    settings |= {"build-dir": str(cmake), "build.targets": "_ext", "install.strip": "false"}
    code = "import json, sys; from scikit_build_core import build; "
    code += "build.build_wheel(sys.argv[1], json.loads(sys.argv[2]))"
    command = [sys.executable, "-c", code, outdir, json.dumps(settings)]
    environment = os.environ | {
        "MLX_NORMS_MLX": mlx,
        "_PYTHON_HOST_PLATFORM": f"macosx-{OLDEST}.0-arm64",
        "SETUPTOOLS_EXT_SUFFIX": f".cpython-3{sys.version_info.minor}-darwin.so",
    }
    subprocess.run(command, check=True, cwd=ROOT, env=environment)


def stub_file() -> Path:
    """The extension's stub file that this Python finds.

    Raises:
        FileNotFoundError: If there is none.
    """
    found = importlib.util.find_spec("mlx_norms")
    folders = [ROOT / "mlx_norms", *(found.submodule_search_locations if found else ())]
    for folder in map(Path, folders):
        if (folder / "_ext.pyi").exists():
            return folder / "_ext.pyi"
    raise FileNotFoundError("there is no _ext.pyi: install mlx_norms, or name it with --stub")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--mlx", default=NEWEST, metavar="RELEASE")
    parser.add_argument("--outdir", type=Path, default=ROOT / "dist", help="default: dist")
    parser.add_argument("--stub", type=Path, help="_ext.pyi; by default that of this Python")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory:
        build(args.outdir.resolve(), args.stub or stub_file(), Path(directory), args.mlx)


if __name__ == "__main__":
    main()
