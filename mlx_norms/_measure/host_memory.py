"""How much of the host's memory a process can allocate."""

from __future__ import annotations

import os
import re
import resource
from collections.abc import Iterator
from pathlib import Path, PurePosixPath

_MEMINFO = Path("/proc/meminfo")
_GROUPS = Path("/proc/self/cgroup")
_ROOT = Path("/sys/fs/cgroup")


def available() -> int:
    """Bytes that can still be allocated, within the limits of the process and its groups."""
    return min([_of_system(), *_of_process(), *_of_groups()])


def _of_system() -> int:
    if _MEMINFO.exists() and (free := re.search(r"MemAvailable: +(\d+) kB", _MEMINFO.read_text())):
        return int(free[1]) << 10
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


def _of_process() -> Iterator[int]:
    limit, _ = resource.getrlimit(resource.RLIMIT_AS)
    if limit != resource.RLIM_INFINITY:
        yield limit


def _of_groups() -> Iterator[int]:
    """Limits of Linux's control groups, versions 1 and 2, as containers set them."""
    if not _GROUPS.exists():
        return
    for line in _GROUPS.read_text().splitlines():
        _, controllers, group = line.split(":", 2)
        if not controllers:
            root, name = _ROOT, "memory.max"
        elif "memory" in controllers.split(","):
            root, name = _ROOT / "memory", "memory.limit_in_bytes"
        else:
            continue
        path = PurePosixPath(group.lstrip("/"))
        for folder in (path, *path.parents):  # a group is also subject to its parents' limits
            file = root / folder / name
            if file.exists() and (text := file.read_text().strip()).isdecimal():
                yield int(text)
