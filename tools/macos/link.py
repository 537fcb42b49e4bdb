"""For those without a Mac: links to libmlx.dylib; found a call that a Mac's linker does not know.

    python tools macos.link [MACOS ...]

MLX has one for each of macOS 14, 15 and 26; by default it is the last, of the newest MLX that there
are extensions for. The compiler is PyPI's ziglang, on any machine. A symbol that libmlx.dylib does
not export fails the link. What the link needs of Apple's frameworks and of Python stands in stub
libraries that only list symbols.
"""

import argparse
import fcntl
import hashlib
import importlib.util
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path

from . import mlx_wheel, toolchain

ROOT = Path(__file__).parents[2]


class MacBuild:
    """The production build, configured for an arm64 Mac, in build/macos of the checkout.

    Args:
        macos: The oldest system that it is for, and that whose MLX it is linked to.

    Raises:
        RuntimeError: If ziglang is not installed.
    """

    def __init__(self, macos: int = mlx_wheel.MACOS[-1]):
        if importlib.util.find_spec("ziglang") is None:
            raise RuntimeError("the macOS build needs zig as a compiler: pip install ziglang")
        root = mlx_wheel.fetch(macos)
        key = hashlib.sha256(f"{sys.executable} {root}".encode()).hexdigest()[:12]
        self.build = ROOT / "build" / "macos" / key
        self.build.mkdir(parents=True, exist_ok=True)
        with self._lock():
            file = toolchain.write(self.build, macos)
            if not (self.build / "build.ninja").exists():
                command = ["cmake", "-S", ROOT, "-B", self.build, "-GNinja"]
                command += [
                    f"-DCMAKE_TOOLCHAIN_FILE={file}",
                    f"-DPython_EXECUTABLE={sys.executable}",
                    f"-DPython_INCLUDE_DIR={toolchain.python_headers(self.build)}",
                    f"-DMLX_ROOT={root}",
                    f"-DMLX_DIR={root}/share/cmake/MLX",
                    # What is asked is whether it links, which takes no optimizer. Zig sanitizes
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
        return next(self.build.glob("_mlx_*/_ext*.so"))

    def link_with(self, source: str, output: Path) -> None:
        """Links the extension once more, with one more C++ source, to `output`; raises as link."""
        module = self.link().relative_to(self.build)
        added, compiled = output.with_suffix(".cpp"), output.with_suffix(".o")
        added.write_text(source)
        ninja = ["ninja", "-C", self.build, "-t", "commands", "_ext"]
        commands = subprocess.run(ninja, check=True, capture_output=True, text=True).stdout
        *compiling, linking = commands.splitlines()
        like = next(command for command in compiling if "/csrc/python/module.cpp.o" in command)
        like, _ = like.split(" -MD ")
        linking = linking.removeprefix(": && ").removesuffix(" && :")
        linking = linking.replace(f"-o {module}", f"-o {output} {compiled}")
        _run(["sh", "-c", f"{like} -o {compiled} -c {added}"], cwd=self.build)
        _run(["sh", "-c", linking], cwd=self.build)

    @contextmanager
    def _lock(self):
        """Held while it builds: test processes that run in parallel share the build."""
        with open(self.build / "lock", "w") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            yield


def _run(command, **options) -> None:
    done = subprocess.run(command, capture_output=True, text=True, **options)
    if done.returncode != 0:
        raise RuntimeError(done.stdout + done.stderr)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("macos", type=int, nargs="*", default=mlx_wheel.MACOS[-1:])
    args = parser.parse_args()
    for macos in args.macos:
        file = MacBuild(macos).link()
        mlx = mlx_wheel.fetch(macos) / "lib" / "libmlx.dylib"
        print(f"macOS {macos}: {file}: {file.stat().st_size} bytes, linked to {mlx}")


if __name__ == "__main__":
    main()
