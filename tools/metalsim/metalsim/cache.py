"""The folder of compiled libraries: each is built once, and removed when it is long unused."""

from __future__ import annotations

import fcntl
import os
import re
import shutil
import tempfile
import threading
import time
from contextlib import contextmanager
from functools import cache
from pathlib import Path

DAY = 24 * 60 * 60
KEPT_SECONDS = 30 * DAY
KEPT_BYTES = 10**9
# No limit on size removes what was used since then: it may be loaded, and faults look up its lines.
IN_USE_SECONDS = DAY

_BUILDING = "building-"
_OURS = re.compile(rf"{_BUILDING}|(?:library|runtime|checks)-[0-9a-f]{{24}}\.")


@cache
def directory() -> Path:
    """Where compiled libraries are kept: METALSIM_CACHE, or a folder in the user's cache."""
    user = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    path = Path(os.environ.get("METALSIM_CACHE") or Path(user, "metalsim"))
    path.mkdir(parents=True, exist_ok=True)
    return path


def temporary_directory() -> tempfile.TemporaryDirectory:
    """A folder in the cache for what a build leaves behind."""
    return tempfile.TemporaryDirectory(prefix=_BUILDING, dir=directory())


def cached(name: str, build) -> Path:
    """The file of that name in the cache; where it is missing, one process builds it and prunes.

    Args:
        name: of the file: "library-", "runtime-" or "checks-", 24 hexadecimal digits, a suffix.
        build: makes the file at the path that it is given.
    """
    path = directory() / name
    if _use(path):
        return path
    with open(path.with_suffix(".lock"), "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not _use(path):
            partial = path.with_suffix(f".{os.getpid()}-{threading.get_ident()}.partial")
            try:
                build(partial)
                partial.replace(path)
            finally:
                partial.unlink(missing_ok=True)
            prune(directory())
    path.with_suffix(".lock").unlink(missing_ok=True)
    return path


def prune(folder: Path) -> None:
    """Removes what was not used for KEPT_SECONDS, then the least recently used over KEPT_BYTES.

    Only entries with the names that this module gives are removed. Another process may prune the
    same folder, and build in it.
    """
    with _locked(folder, fcntl.LOCK_EX):
        now, total = time.time(), 0
        for entry, used, size in sorted(_entries(folder), key=lambda entry: entry[1], reverse=True):
            total += size
            unused = now - used
            if unused > KEPT_SECONDS or (total > KEPT_BYTES and unused > IN_USE_SECONDS):
                _remove(entry)


@contextmanager
def _locked(folder: Path, how: int):
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, how)
        yield
    finally:
        os.close(descriptor)


def _entries(folder: Path):
    """The cache's entries: path, time of the last use, bytes."""
    for entry in os.scandir(folder):
        if _OURS.match(entry.name):
            try:
                status = entry.stat(follow_symlinks=False)
            except FileNotFoundError:
                continue  # another process removed it
            yield Path(entry.path), status.st_mtime, status.st_size


def _remove(path: Path) -> None:
    try:
        if path.is_dir():
            shutil.rmtree(path, ignore_errors=True)
        else:
            path.unlink(missing_ok=True)
    except PermissionError:
        pass  # somebody else's


def _use(path: Path) -> bool:
    """Whether there is such a file, which is marked as used now."""
    try:
        with _locked(path.parent, fcntl.LOCK_SH):  # or it may be found old, marked, then removed
            os.utime(path)
    except FileNotFoundError:
        return False
    except OSError:
        return path.exists()  # where it cannot be marked, as in a cache that is read-only
    return True
