"""Imports MLX and the extension, or says in one sentence why they do not fit.

MLX's C++ interface changes with each release, and extensions share types only if they were built
with the same nanobind ABI. With a mismatch of either, the import would succeed, and later calls
would crash or reject every array.
"""

import ctypes
import functools
import importlib.metadata
import importlib.util
import json
import shlex
import sys
import urllib.parse
from pathlib import Path

from mlx_norms._package_data import damaged

PACKAGE = Path(__file__).parent

try:
    from mlx_norms import _built
except ImportError as error:
    if not (PACKAGE.parent / "pyproject.toml").exists():
        raise ImportError(damaged(PACKAGE / "_built.py", error)) from None
    raise ImportError(
        "mlx_norms is here as source alone, without its extension: pip install '.[cpu]' in the "
        "checkout, or '.' on a Mac."
    ) from None

# The packages that contain libmlx, and the extra that installs each on Linux.
BACKENDS = {"mlx-cpu": "cpu", "mlx-cuda-12": "cuda12", "mlx-cuda-13": "cuda13", "mlx-metal": ""}


def installed_backends() -> dict[str, str]:
    """The versions of the installed packages that contain libmlx, by name."""
    versions = {}
    for name in BACKENDS:
        try:
            versions[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return versions


def _install_mlx(*options: str) -> str:
    """The pip command for the MLX that the extension was built against, with its backends."""
    extras = ",".join(BACKENDS[name] for name in installed_backends() if BACKENDS[name])
    mlx = f"mlx[{extras}]" if extras else "mlx"
    return " ".join(["pip install", *options, f"'{mlx}=={_built.MLX_VERSION}'"])


def _check_extension() -> None:
    """Raises if there is no extension for this Python: pip installs it, copying may not."""
    if importlib.util.find_spec("mlx_norms._ext") is None:
        raise ImportError(
            f"mlx_norms in {PACKAGE} has no extension for Python {sys.version_info.major}."
            f"{sys.version_info.minor}: install it with the pip of this Python "
            f"({sys.executable} -m pip)."
        )


def _check_library() -> None:
    """Raises if MLX is installed without libmlx, which is a package of its own on Linux."""
    spec = importlib.util.find_spec("mlx")
    roots = spec.submodule_search_locations if spec else []
    if sys.platform == "linux" and not any((Path(r) / "lib/libmlx.so").exists() for r in roots):
        raise ImportError(
            f"mlx_norms was built against mlx {_built.MLX_VERSION}, and its library libmlx.so is "
            f"not installed: pip install 'mlx[cpu]=={_built.MLX_VERSION}', or [cuda12] or [cuda13] "
            "for an NVIDIA GPU."
        )


def _check_versions() -> None:
    """Raises if MLX or its backend is not of the version that the extension was built against."""
    needed = f"mlx_norms was built against mlx {_built.MLX_VERSION}, and"
    try:
        versions = {"mlx": importlib.metadata.version("mlx"), **installed_backends()}
    except importlib.metadata.PackageNotFoundError:
        raise ImportError(f"{needed} no package mlx is installed: {_install_mlx()}.") from None
    for name, version in versions.items():
        if version != _built.MLX_VERSION:
            raise ImportError(f"{needed} {name} {version} is installed: {_install_mlx()}.")


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


def _mend_abi() -> str:
    """The command that gives the extension and MLX the same nanobind ABI."""
    folder = _built_from()
    if folder:
        return f"pip install --force-reinstall --no-deps {shlex.quote(folder)}"
    # Wheels are built for PyPI's MLX.
    return (
        f"{_install_mlx('--force-reinstall')}, or, if that is the mlx installed, another build of "
        "mlx_norms"
    )


def load() -> None:
    """Imports MLX and then the extension.

    Raises:
        ImportError: If the extension is not for this Python, libmlx or MLX is missing, MLX is not
            the version that the extension was built against, or the extension's nanobind ABI is
            not MLX's.
    """
    _check_extension()
    _check_library()
    _check_versions()
    import mlx.core  # noqa: F401

    mlx_abis = _mlx_abis()
    from mlx_norms import _ext  # noqa: F401

    foreign = _nanobind_abis() - mlx_abis
    if foreign:
        raise ImportError(
            f"mlx_norms was built with nanobind {_built.NANOBIND_VERSION} (ABI "
            f"{', '.join(sorted(foreign))}), and mlx {_built.MLX_VERSION} with ABI "
            f"{', '.join(sorted(mlx_abis))}: {_mend_abi()}."
        )
