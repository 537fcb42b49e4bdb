"""The releases of MLX that there are extensions for, and which of them a build is for.

A build is for one: the MLX that it finds, which pip, where it makes an environment for the build,
takes from $MLX_NORMS_MLX, or else the newest. scikit-build-core calls the functions at the end, as
pyproject.toml says.
"""

import importlib.metadata
import os
import sys

# A nanobind with the internals of that which MLX's own extension was built with.
NANOBIND = {
    "0.31.2": "2.12.0",
    "0.32.0": "2.13.0",
    "0.32.1": "2.13.0",
    "0.32.2": "2.15.0",
    "0.32.3": "3.0.1",
    "0.32.4": "3.1.0",
}
NEWEST = [*NANOBIND][-1]
# The oldest with wheels for a Python, if not all have them.
OLDEST = {"3.14t": "0.32.1", "3.15": "0.32.4"}

# The newest mlx_lm that goes with each; 0.32.2 needs MLX 0.32.2.
MLX_LM = {mlx: "0.32.2" if mlx >= "0.32.2" else "0.31.3" for mlx in NANOBIND}
WANTED = "MLX_NORMS_MLX"  # which CMakeLists.txt compares with the MLX that it finds


# What builds an extension, besides pip, where it makes no environment for the build.
BUILD_TOOLS = ("cmake>=3.27", "ninja", "scikit-build-core>=1.1", "typing_extensions")


def releases(python: str = "{}.{}".format(*sys.version_info) + sys.abiflags) -> list[str]:
    """Those that have a wheel for this Python, such as 3.14t, oldest first."""
    return [mlx for mlx in NANOBIND if mlx >= OLDEST.get(python, mlx)]


def folder(mlx: str) -> str:
    """Of the extension for a release of MLX, in the package, as CMakeLists.txt names it."""
    return f"_mlx_{mlx.replace('.', '_')}"


def build_requires(mlx: str) -> list[str]:
    """What an extension for this release of MLX is built with."""
    return [
        f"mlx=={mlx}",
        f"mlx-cpu=={mlx}; platform_system == 'Linux'",
        f"nanobind=={NANOBIND.get(mlx, NANOBIND[NEWEST])}",
    ]


def get_requires_for_dynamic_metadata(settings) -> list[str]:
    """What an environment for a build needs besides what pyproject.toml lists."""
    return build_requires(os.environ.get(WANTED) or NEWEST)


def dynamic_wheel(settings) -> dict[str, bool]:
    """A wheel's dependency is not that of the sdist."""
    return {"dependencies": True}


def urls() -> dict[str, str]:
    """The project's addresses, where GitHub builds it; nothing in a checkout says them."""
    if "GITHUB_REPOSITORY" not in os.environ:
        return {}
    root = f"{os.environ['GITHUB_SERVER_URL']}/{os.environ['GITHUB_REPOSITORY']}"
    return {
        "Source": root,
        "Issues": f"{root}/issues",
        "Changelog": f"{root}/blob/main/CHANGELOG.md",
        "Documentation": f"{root}/tree/main/docs",
    }


def dynamic_metadata(settings, project) -> dict[str, list[str] | dict[str, str]]:
    """The dependency of a wheel for one release of MLX, and addresses."""
    try:
        found = importlib.metadata.version("mlx")
    except importlib.metadata.PackageNotFoundError:
        found = NEWEST
    return {"dependencies": [f"mlx=={os.environ.get(WANTED) or found}"], "urls": urls()}
