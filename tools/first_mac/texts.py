"""Every library's text by the run-time compiler, and by Xcode's where there is one."""

from __future__ import annotations

import concurrent.futures
import functools
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from . import facts, items, metal_api

ROOT = Path(__file__).parents[2]
NEWER = f"a newer Xcode, then: {facts.TOOLCHAIN}"


def by_extension() -> list[items.Item]:
    """As the extension and MLX ask for them: each kernel by itself, or from metallibs."""

    def built() -> dict:
        import mlx.core as mx

        from mlx_norms import _ext

        if not (mx.metal.is_available() or _simulates()):
            raise items.NotRun("this build has no kernels for Metal")
        libraries = _ext.built_libraries()
        refused = [library["name"] for library in libraries if not library["usable"]]
        found = {"libraries": [_private(library) for library in libraries]}
        if refused:
            reason = f"not usable: {', '.join(refused)}"
            found |= {"status": items.FAILED, "reason": reason}
        return found

    return [("libraries as the extension builds them", built)]


def _simulates() -> bool:
    from mlx_norms import _built

    return "metal-sim" in _built.BACKENDS


def _private(library: dict) -> dict:
    return library | {"failure": items.private(library["failure"])[:3000]}


def by_version(version: str) -> list[items.Item]:
    """The text of each library, whole, in a version of the language."""
    import join

    metal = None

    def compiled(text: str) -> dict:
        nonlocal metal
        metal = metal or metal_api.Metal()
        said = metal.compile(text, version)
        return {"said": items.private(said)[:1500]} if said else {}

    found = [
        (f"{name}, {version}", lambda text=text: compiled(text))
        for name, text in join.texts().items()
    ]
    if version == newest():
        found.insert(0, ("GPU's families", lambda: {"value": metal_api.Metal().families()}))
    return found


def cannot(version: str) -> tuple[str, ...]:
    """Why this system has no such version of the language."""
    if not facts.system_version():
        return ("there is no Metal here",)
    if facts.system_version() < metal_api.VERSIONS[version]:
        return (f"Metal {version} comes with macOS {metal_api.VERSIONS[version][0]}",)
    return ()


def newest() -> str:
    """That which MLX asks for: the newest of this system."""
    version = facts.system_version()
    known = [name for name, first in metal_api.VERSIONS.items() if not version or version >= first]
    return (known or [*metal_api.VERSIONS])[-1]


def by_xcode() -> list[items.Item]:
    """By Xcode's compiler, each text in each version: what a build with metallibs needs.

    Items wait for their turn of what is compiled on all cores, the newest version first.
    """
    import join
    from macos import compile_metal

    folder = Path(tempfile.mkdtemp())
    pool = concurrent.futures.ThreadPoolExecutor(os.cpu_count())
    versions = sorted(compile_metal.MACOS, reverse=True)
    names = [*join.texts()]
    sources = {}
    for version in versions:
        for name, text in {"empty": "", **join.texts()}.items():
            sources[name, version] = folder / version / f"{name}.metal"
            sources[name, version].parent.mkdir(exist_ok=True)
            sources[name, version].write_text(text)

    def run(name: str, version: str) -> tuple[bool, str, float]:
        begin = time.perf_counter()
        good, log = compile_metal.compiles(sources[name, version], version)
        log = items.private(log.replace(f"{folder / version}/", ""))[:1500]
        return good, log, round(time.perf_counter() - begin, 3)

    @functools.cache
    def known(version: str) -> tuple[bool, str, dict]:
        good, log, _ = run("empty", version)
        return good, log, {name: pool.submit(run, name, version) for name in names if good}

    def compiled(name: str, version: str) -> dict:
        for each in versions:  # so that no core waits for the version before
            known(each)
        good, log, running = known(version)
        if not good:
            reason = f"this compiler does not know Metal {version}: {log.partition(chr(10))[0]}"
            raise items.NotRun(reason, facts.TOOLCHAIN if "Toolchain" in log else NEWER)
        good, log, seconds = running[name].result()
        found = {"seconds": seconds} | ({"said": log} if log else {})
        return found if good else found | {"status": items.FAILED, "reason": log}

    return [
        (f"{name}, {version}", lambda name=name, version=version: compiled(name, version))
        for version in versions
        for name in names
    ]


def without_metallibs(folder: Path) -> Path:
    """A copy of the installed package that has none, for PYTHONPATH.

    Raises:
        items.NotRun: If the installed one has none.
    """
    import shutil

    code = "import mlx_norms._guard as g, mlx_norms; print(*mlx_norms.__path__, sep='\\n')"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    places = [Path(line) for line in done.stdout.splitlines()]
    package = next((place for place in places if any(place.glob("_mlx_*/*.metallib"))), None)
    if package is None:
        raise items.NotRun("this build has no metallibs: each first call compiles", facts.TOOLCHAIN)
    ignored = shutil.ignore_patterns("*.metallib", "__pycache__")
    shutil.copytree(package, folder / "mlx_norms", ignore=ignored)
    return folder
