"""Apple's compiled Metal libraries: the LLVM bitcode of their kernels."""

from __future__ import annotations

import mmap
import struct
from pathlib import Path


class Metallib:
    """A .metallib file.

    Args:
        path: the file, which stays open.

    Raises:
        ValueError: it is none.
    """

    def __init__(self, path: Path):
        with open(path, "rb") as file:
            self._data = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        if self._data[:4] != b"MTLB":
            raise ValueError(f"{path} is no Metal library")
        functions, _, _, _, _, _, self._bitcode, _ = struct.unpack_from("<8Q", self._data, 24)
        self._entries = self._read_entries(functions)

    def kernels(self) -> list[str]:
        return list(self._entries)

    def bitcode(self, kernel: str) -> bytes:
        offset, size = self._entries[kernel]
        start = self._bitcode + offset
        return self._data[start : start + size]

    def _read_entries(self, at: int) -> dict[str, tuple[int, int]]:
        (count,) = struct.unpack_from("<I", self._data, at)
        at += 4
        entries = {}
        for _ in range(count):
            (size,) = struct.unpack_from("<I", self._data, at)
            tags = self._read_tags(at + 4)
            at += size
            name = tags["NAME"].rstrip(b"\0").decode()
            _, _, offset = struct.unpack("<3Q", tags["OFFT"])
            entries[name] = offset, struct.unpack("<Q", tags["MDSZ"])[0]
        return entries

    def _read_tags(self, at: int) -> dict[str, bytes]:
        tags = {}
        while (tag := self._data[at : at + 4].decode()) != "ENDT":
            (size,) = struct.unpack_from("<H", self._data, at + 4)
            tags[tag] = self._data[at + 6 : at + 6 + size]
            at += 6 + size
        return tags
