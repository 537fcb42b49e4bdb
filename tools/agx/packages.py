"""For agx: Debian's packages of the compilers, unpacked in a cache folder: nothing is installed.

python tools agx.packages          fetches them and prints the folder
python tools agx.packages --pin    prints packages.txt anew, with today's versions
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import platform
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).parent
PINNED = HERE / "packages.txt"
SUITES = ("trixie", "trixie-backports")
LIBRARIES = "usr/lib/x86_64-linux-gnu"


class Unavailable(RuntimeError):
    """The packages cannot be had here, or what they need; says why."""


class Tree:
    """A folder with the packages' files. Its programs run by its own loader and C library."""

    def __init__(self, root: Path):
        self.root = root

    def command(self, program: str, *options: str) -> list[str]:
        """What runs a program of the tree, with options of the loader."""
        path = f"{self.root / LIBRARIES}:{self.root}/usr/lib/llvm-19/lib"
        loader = self.root / LIBRARIES / "ld-linux-x86-64.so.2"
        return [str(loader), "--library-path", path, *options, str(self.root / program)]

    def run(self, program: str, *arguments: str | Path) -> str:
        """What a program prints.

        Raises:
            RuntimeError: If it fails; the text is the program's.
        """
        command = [*self.command(program), *map(str, arguments)]
        done = subprocess.run(command, capture_output=True, text=True, errors="replace")
        if done.returncode != 0:
            raise RuntimeError(done.stderr.strip() or f"{program}: status {done.returncode}")
        return done.stdout


def tree() -> Tree:
    """The packages' tree, fetched unless the cache has it.

    Raises:
        Unavailable: If they cannot be had here.
    """
    if platform.system() != "Linux" or platform.machine() != "x86_64":
        raise Unavailable("the packages are for Linux on x86-64")
    key = hashlib.sha256(b"".join(f.read_bytes() for f in _sources())).hexdigest()[:16]
    root = cache() / key
    with open(cache() / "lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not root.is_dir():
            with tempfile.TemporaryDirectory(dir=cache()) as folder:
                new = Path(folder) / "tree"
                _unpack(_download(Path(folder)), new)
                _compile(new)
                new.rename(root)
    return Tree(root)


def cache() -> Path:
    """The folder in which things are kept from one run to the next."""
    folder = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "mlx_norms" / "agx"
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def pinned() -> list[tuple[str, str, str]]:
    """Name, version and SHA-256 of each package."""
    lines = [line for line in PINNED.read_text().splitlines() if not line.startswith("#")]
    return [tuple(line.split()) for line in lines]


def _sources() -> list[Path]:
    """What the tree is made of."""
    return [PINNED, HERE / "agxshim.c", HERE / "compile_kernels.c"]


class _Apt:
    """apt with lists of its own, which needs no rights and changes nothing of this machine."""

    def __init__(self, folder: Path):
        self.folder = folder
        if not shutil.which("apt-get") or not shutil.which("dpkg-deb"):
            raise Unavailable("there is no apt-get or dpkg-deb")
        for name in ("lists/partial", "cache/archives/partial", "state"):
            (folder / name).mkdir(parents=True)
        (folder / "status").touch()
        # Trusted, as each package is compared with its SHA-256; other systems lack Debian's keys.
        mirror = os.environ.get("AGX_DEBIAN", "http://deb.debian.org/debian")
        suites = [f"deb [arch=amd64 trusted=yes] {mirror} {suite} main\n" for suite in SUITES]
        (folder / "sources.list").write_text("".join(suites))
        # Of an older date where the mirror is a snapshot.
        options = {
            "APT::Architecture": "amd64",
            "APT::Sandbox::User": "",
            "Acquire::Check-Valid-Until": "false",
            "Debug::NoLocking": "1",
            "Dir::Cache": folder / "cache",
            "Dir::Etc::sourcelist": folder / "sources.list",
            "Dir::Etc::sourceparts": "/dev/null",
            "Dir::State": folder / "state",
            "Dir::State::lists": folder / "lists",
            "Dir::State::status": folder / "status",
        }
        self.options = [f"-o{name}={value}" for name, value in options.items()]
        self("apt-get", "update", "--error-on=any")

    def __call__(self, program: str, *arguments: str) -> str:
        command = [program, "-q", *self.options, *arguments]
        done = subprocess.run(command, cwd=self.folder, capture_output=True, text=True)
        if done.returncode != 0:
            raise Unavailable(f"{program} {arguments[0]}: {done.stderr.strip()}")
        return done.stdout


def _download(folder: Path) -> list[Path]:
    apt = _Apt(folder / "apt")
    wanted = pinned()
    apt("apt-get", "download", *(f"{name}={version}" for name, version, _ in wanted))
    files = sorted(apt.folder.glob("*.deb"))
    sums = {hashlib.sha256(file.read_bytes()).hexdigest(): file for file in files}
    for name, version, sha256 in wanted:
        if sha256 not in sums:
            raise RuntimeError(f"{name} {version} is not the package of packages.txt")
    return files


def _unpack(files: list[Path], root: Path) -> None:
    # As in Debian: some packages still have files in /lib.
    (root / LIBRARIES).mkdir(parents=True)
    for name in ("bin", "lib", "lib64", "sbin"):
        (root / "usr" / name).mkdir(exist_ok=True)
        (root / name).symlink_to(f"usr/{name}")
    for file in files:
        with subprocess.Popen(
            ["dpkg-deb", "--fsys-tarfile", file], stdout=subprocess.PIPE
        ) as packed:
            unpack = ["tar", "-x", "--keep-directory-symlink", "--no-same-owner", "-C", root]
            subprocess.run([*unpack, "-f", "-"], stdin=packed.stdout, check=True)


def _compile(root: Path) -> None:
    """The GPU that is not there, and the program that has kernels compiled for it."""
    compiler = next(filter(shutil.which, ("cc", "gcc", "clang-16", "clang")), None)
    if compiler is None:
        raise Unavailable("there is no C compiler")
    include, libraries = root / "usr/include", root / LIBRARIES
    with tempfile.TemporaryDirectory() as headers:
        # Its C library's headers stand behind this machine's.
        for name in ("drm", "libdrm", "CL", "xf86drm.h"):
            Path(headers, name).symlink_to(include / name)
        flags = ["-O1", "-Wall", f"-I{headers}", f"-I{headers}/libdrm", "-idirafter", include]
        for command in (
            ["-shared", "-fPIC", "-o", root / "agxshim.so", HERE / "agxshim.c", "-ldl"],
            [
                *("-o", root / "compile_kernels", HERE / "compile_kernels.c"),
                *(libraries / "libOpenCL.so.1", "-Wl,--allow-shlib-undefined"),
            ],
        ):
            done = subprocess.run([compiler, *flags, *command], capture_output=True, text=True)
            if done.returncode != 0:
                raise RuntimeError(done.stderr)


def _pin() -> str:
    names = [name for name, _, _ in pinned()]
    with tempfile.TemporaryDirectory() as folder:
        apt = _Apt(Path(folder) / "apt")
        # Backports only of what is not from the release itself.
        of = {
            name: f"{name}/{SUITES[1]}"
            for name in ("libelf1t64", "linux-libc-dev", "mesa-opencl-icd")
        }
        text = ""
        for name in names:
            shown = apt("apt-cache", "show", "--no-all-versions", name)
            if name in of:
                shown = max(
                    apt("apt-cache", "show", name).split("\n\n"), key=lambda entry: "bpo" in entry
                )
            version, sha256 = (
                re.search(rf"^{field}: (\S+)", shown, re.M)[1] for field in ("Version", "SHA256")
            )
            text += f"{name} {version} {sha256}\n"
    comments = [line for line in PINNED.read_text().splitlines() if line.startswith("#")]
    return "\n".join(comments) + "\n" + text


if __name__ == "__main__":
    print(_pin() if sys.argv[1:] == ["--pin"] else tree().root)
