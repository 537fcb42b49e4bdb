"""Imports MLX and the extension for its release, or says in one sentence why there is none.

MLX's C++ interface changes with each release, and extensions share types only if they were built
with the same nanobind ABI. With a mismatch of either, the import would succeed, and later calls
would crash or reject every array. So there is an extension for each release, in a folder such as
``_mlx_0_32_4``, and it is loaded with that release alone.
"""

from __future__ import annotations

import ctypes
import functools
import importlib.machinery
import importlib.metadata
import importlib.util
import json
import re
import shlex
import sys
import sysconfig
import urllib.parse
from pathlib import Path
from types import ModuleType

from mlx_norms._package_data import damaged

PACKAGE = Path(__file__).parent

# The packages that contain libmlx, and the extra that installs each on Linux.
BACKENDS = {"mlx-cpu": "cpu", "mlx-cuda-12": "cuda12", "mlx-cuda-13": "cuda13", "mlx-metal": ""}


class UnsupportedMLX(ImportError):
    """There is no extension for the installed release of MLX.

    Attributes:
        installed (str): The release of MLX that is installed.
        supported (list): The releases that there are extensions for, oldest first.
    """

    def __init__(self, message: str, installed: str, supported: list[str]):
        super().__init__(message)
        self.installed = installed
        self.supported = supported


def extensions() -> dict[str, Path]:
    """The extensions' folders by release of MLX, oldest first; of two copies, that in use."""
    found: dict[str, Path] = {}
    for root in sys.modules["mlx_norms"].__path__:
        for folder in Path(root).glob("_mlx_*"):
            release = folder.name.removeprefix("_mlx_").replace("_", ".")
            found.setdefault(release, folder)
    return dict(sorted(found.items(), key=lambda item: _order(item[0])))


def _dotted(release: str) -> str:
    """A release as `extensions` names it: "0.33.0.dev1.g12" of "0.33.0.dev1+g12"."""
    return re.sub("[^0-9A-Za-z]", ".", release)


def _order(release: str) -> list[tuple[int, str]]:
    """By numbers, where there are numbers."""
    return [(int(n), "") if n.isdigit() else (-1, n) for n in release.split(".")]


def installed(*names: str) -> dict[str, str]:
    """The versions of those of these packages that are installed, by name."""
    versions = {}
    for name in names:
        try:
            versions[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return versions


def installed_backends() -> dict[str, str]:
    """The versions of the installed packages that contain libmlx, by name."""
    return installed(*BACKENDS)


def _install_mlx(release: str, *options: str, extras: str = "") -> str:
    """The pip command for a release of MLX, with the backends that are installed."""
    extras = extras or ",".join(BACKENDS[name] for name in installed_backends() if BACKENDS[name])
    mlx = f"mlx[{extras}]" if extras else "mlx"
    return " ".join(["pip install", *options, f"'{mlx}=={release}'"])


def _check_python() -> None:
    """Raises if this Python has no GIL, for which MLX's extension has another ABI."""
    if sysconfig.get_config_var("Py_GIL_DISABLED"):
        raise ImportError(
            "mlx_norms has no extension for a free-threaded Python: use the usual build of Python "
            f"{sys.version_info.major}.{sys.version_info.minor}."
        )


def _check_extensions(found: dict[str, Path]) -> None:
    """Raises if there is no extension at all, or none for this Python: copying may not install."""
    if not found:
        if (PACKAGE.parent / "pyproject.toml").exists():
            raise ImportError(
                "mlx_norms is here as source alone, without its extension: pip install '.[cpu]' in "
                "the checkout, or '.' on a Mac."
            )
        raise ImportError(damaged(PACKAGE / "_mlx_*", FileNotFoundError("no such folder")))
    if not any(map(_binary, found.values())):
        folder = next(iter(found.values())).parent
        raise ImportError(
            f"mlx_norms in {folder} has no extension for Python {sys.version_info.major}."
            f"{sys.version_info.minor}: install it with the pip of this Python "
            f"({sys.executable} -m pip)."
        )


def _binary(folder: Path) -> Path | None:
    """The extension in a folder that this Python can load."""
    files = (folder / f"_ext{suffix}" for suffix in importlib.machinery.EXTENSION_SUFFIXES)
    return next((file for file in files if file.exists()), None)


def _check_library(newest: str) -> None:
    """Raises if MLX is installed without libmlx, which is a package of its own on Linux."""
    spec = importlib.util.find_spec("mlx")
    roots = spec.submodule_search_locations if spec else []
    if sys.platform == "linux" and not any((Path(r) / "lib/libmlx.so").exists() for r in roots):
        raise ImportError(
            "mlx_norms needs mlx's library libmlx.so, which is not installed: "
            f"{_install_mlx(newest, extras='cpu')}, or [cuda12] or [cuda13] for an NVIDIA GPU."
        )


def installed_mlx(newest: str) -> str:
    """The release of MLX that is installed.

    Raises:
        ImportError: If there is none, or its backend is of another one.
    """
    release = installed("mlx").get("mlx")
    if release is None:
        command = _install_mlx(newest)
        raise ImportError(f"mlx_norms needs mlx, and no package mlx is installed: {command}.")
    for name, version in installed_backends().items():
        if version != release:
            wanted = release if _dotted(release) in extensions() else newest
            raise ImportError(
                f"mlx {release} and {name} {version} are installed, which do not go together: "
                f"{_install_mlx(wanted)}."
            )
    return release


def _build_command(release: str) -> str:
    """The pip command that builds an extension for a release of MLX."""
    where = _built_from()
    source = shlex.quote(where) if where else "--no-binary mlx_norms mlx_norms"
    return f"MLX_NORMS_MLX={release} pip install --force-reinstall --no-deps {source}"


def _nanobind_abis() -> set[str]:
    """The nanobind ABIs that have been loaded for MLX's domain, as nanobind registers them."""
    api = ctypes.pythonapi
    api.PyInterpreterState_Get.restype = ctypes.c_void_p
    # A borrowed reference: ctypes would take ownership of a py_object.
    api.PyInterpreterState_GetDict.restype = ctypes.c_void_p
    api.PyInterpreterState_GetDict.argtypes = [ctypes.c_void_p]
    address = api.PyInterpreterState_GetDict(api.PyInterpreterState_Get())
    registry = ctypes.cast(address, ctypes.py_object).value
    prefix, suffix = "__nb_internals_", "_mlx__"
    return {
        key[len(prefix) : -len(suffix)]
        for key in registry
        if isinstance(key, str) and key.startswith(prefix) and key.endswith(suffix)
    }


@functools.cache
def _mlx_abis() -> set[str]:
    """The ABIs before our extension loads. Cached: a failed import leaves its ABI registered."""
    return _nanobind_abis()


def _built_from() -> str | None:
    """The folder that pip built this package from, or None if it is from a wheel."""
    try:
        text = importlib.metadata.distribution("mlx_norms").read_text("direct_url.json")
    except importlib.metadata.PackageNotFoundError:
        return None
    source = json.loads(text) if text else {}
    if "dir_info" not in source:
        return None
    return urllib.parse.unquote(urllib.parse.urlsplit(source["url"]).path)


def _mend_abi(release: str) -> str:
    """The command that gives the extension and MLX the same nanobind ABI."""
    if _built_from():
        return _build_command(release)
    # Wheels are built for PyPI's MLX.
    return (
        f"{_install_mlx(release, '--force-reinstall')}, or, if that is the mlx installed, another "
        "build of mlx_norms"
    )


def _load(name: str, file: Path) -> ModuleType:
    """The module ``mlx_norms.<name>`` from a file of the extension's folder."""
    full = f"mlx_norms.{name}"
    if full in sys.modules:
        return sys.modules[full]
    spec = importlib.util.spec_from_file_location(full, file)
    module = importlib.util.module_from_spec(spec)
    sys.modules[full] = module
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[full]
        raise
    setattr(sys.modules["mlx_norms"], name, module)
    return module


def load() -> None:
    """Imports MLX, and then the extension for its release as ``mlx_norms._ext``.

    Raises:
        UnsupportedMLX: If there is no extension for the release of MLX that is installed.
        ImportError: If there is no extension, or none for this Python, libmlx or MLX is missing,
            they are of different releases, or the extension's nanobind ABI is not MLX's.
    """
    _check_python()
    found = extensions()
    _check_extensions(found)
    newest = [*found][-1]
    _check_library(newest)
    release = installed_mlx(newest)
    folder = found.get(_dotted(release))
    file = _binary(folder) if folder else None
    if not file:
        supported = [each for each, folder in found.items() if _binary(folder)]
        raise UnsupportedMLX(
            f"mlx {release} is installed, and this mlx_norms is for {', '.join(supported)}: "
            f"{_build_command(release)} builds it for mlx {release}.",
            release,
            supported,
        )
    try:
        built = _load("_built", file.parent / "_built.py")
    except (OSError, SyntaxError) as error:
        raise ImportError(damaged(file.parent / "_built.py", error)) from None
    import mlx.core  # noqa: F401

    mlx_abis = _mlx_abis()
    _load("_ext", file)
    foreign = _nanobind_abis() - mlx_abis
    if foreign:
        raise ImportError(
            f"mlx_norms was built with nanobind {built.NANOBIND_VERSION} (ABI "
            f"{', '.join(sorted(foreign))}), and mlx {release} with ABI "
            f"{', '.join(sorted(mlx_abis))}: {_mend_abi(release)}."
        )


def explain(error: Exception) -> None:
    """Ends ``python -m mlx_norms COMMAND`` by a sentence, where the import has failed.

    ``info`` has a table, too, of what is installed and what there is of mlx_norms.
    """
    arguments = getattr(sys, "orig_argv", [])
    at = next((i for i, a in enumerate(arguments[:-1]) if a == "-m"), None)
    if at is None or sys.argv[:1] != ["-m"] or arguments[at + 1] != "mlx_norms":
        return
    if arguments[at + 2 : at + 3] == ["info"]:
        rows = [("python", f"{sys.version.split()[0]} ({sys.executable})")]
        rows += installed("mlx", *BACKENDS).items()
        for release, folder in extensions().items():
            usable = "for this Python" if _binary(folder) else "for another Python"
            rows.append((f"for mlx {release}", f"{folder} ({usable})"))
        width = max(len(label) for label, _ in rows)
        print(*(f"{label:{width}}  {text}" for label, text in rows), sep="\n")
        print(f"\n{error}")
        raise SystemExit(1)
    raise SystemExit(str(error))
