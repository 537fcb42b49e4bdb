"""Modules of packages without what the packages themselves import."""

from __future__ import annotations

import contextlib
import importlib.machinery
import importlib.util
import sys
import types
from collections.abc import Iterator


@contextlib.contextmanager
def bare_packages(name: str) -> Iterator[None]:
    """A package whose modules can be imported, but not what all of it needs, such as torch."""
    root = name.split(".")[0]
    (place,) = importlib.util.find_spec(root).submodule_search_locations
    known, path = set(sys.modules), ""
    for part in name.split("."):
        path = f"{path}.{part}".lstrip(".")
        package = types.ModuleType(path)
        package.__path__ = [place + path.removeprefix(root).replace(".", "/")]
        package.__spec__ = importlib.machinery.ModuleSpec(path, None, is_package=True)
        package.__spec__.submodule_search_locations = package.__path__
        sys.modules.setdefault(path, package)
    try:
        yield
    finally:
        for added in [m for m in set(sys.modules) - known if m.split(".")[0] == root]:
            del sys.modules[added]
