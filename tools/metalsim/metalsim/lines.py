"""From addresses in a compiled library to lines of the Metal source."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from functools import cache

from .compiler import SHIM, CompileError, original_name
from .msl.tokens import MARKER
from .result import Fault

_WORD, _WORD_END = re.compile(r"\w+"), re.compile(r"\w*$")


class Lines:
    """The lines of one shared library, looked up when a fault asks for them.

    Args:
        path: of the library.
        cpp: the rewritten source it was compiled from.
        threadgroup_names: its variables in threadgroup memory.
    """

    def __init__(self, path, cpp, threadgroup_names):
        self._path = os.path.realpath(path)
        self._cpp = cpp
        self._threadgroup_names = threadgroup_names
        self._known = {}

    def faults(self, record, name, kernel) -> list[Fault]:
        """The faults of a launch of `kernel` by its host name, with their lines."""
        records = record.faults[: record.fault_count]
        self._look_up({r.pc for r in records if r.pc} - self._known.keys())
        found = {}
        for r in records:
            file, line = (original_name(r.file.decode()), r.line) if r.line else ("", 0)
            if not line or _is_shim(file):
                file, line = self._known.get(r.pc, ("", 0))
            kind, buffer = r.kind.decode(), r.buffer.decode()
            if kind == "out-of-bounds private":
                buffer = self._array(file, line, r.column)
                if buffer in self._threadgroup_names:
                    kind = "out-of-bounds threadgroup"
            place = (file, line) if line else (kernel.file, kernel.line)
            same = found.get((kind, buffer, place))
            if same:
                same.count += r.count
                continue
            found[kind, buffer, place] = Fault(
                kind=kind,
                kernel=name,
                message=r.message.decode(),
                file=place[0],
                line=place[1],
                buffer=buffer,
                thread=r.thread,
                threadgroup=(r.group.x, r.group.y, r.group.z),
                count=r.count,
            )
        return list(found.values())

    def _array(self, file, line, column) -> str:
        """Name of the array that is indexed at this place."""
        for text in _source_lines(self._cpp, file, line):
            name = _indexed(text, column - 1)
            if name:
                return name
        return ""

    def _look_up(self, addresses):
        inside = {}
        for address in addresses:
            self._known[address] = ("", 0)
            for start, stop, offset in self._mappings() if addresses else ():
                if start <= address < stop:
                    inside[address] = address - start + offset - 1  # in the call, not after it
        if not inside:
            return
        command = [_addr2line(), "-e", self._path, "-i", "-a", *map(hex, inside.values())]
        output = subprocess.run(command, capture_output=True, text=True, check=True).stdout
        frames, places = [], {}
        for line in output.splitlines():
            if line.startswith("0x"):
                frames = places.setdefault(int(line, 16), [])
            else:
                frames.append(line.split(" (")[0])
        for address, offset in inside.items():
            self._known[address] = _place(places.get(offset, []))

    def _mappings(self):
        with open("/proc/self/maps") as maps:
            for line in maps:
                fields = line.split(maxsplit=5)
                if len(fields) == 6 and fields[5].strip() == self._path:
                    start, stop = (int(x, 16) for x in fields[0].split("-"))
                    yield start, stop, int(fields[2], 16)


def _indexed(text, at) -> str:
    """Name of the array in an expression that begins at `at`, or whose index ends there."""
    while at < len(text) and text[at] == "]":
        depth = 1
        while depth and at > 0:
            at -= 1
            depth += (text[at] == "]") - (text[at] == "[")
        at = len(text[:at].rstrip()) - 1
    if at >= len(text) or not (text[at].isalnum() or text[at] == "_"):
        return ""
    return _WORD_END.search(text, 0, at)[0] + _WORD.match(text, at)[0]


def _source_lines(cpp, file, line):
    """The lines of the rewritten source that are of this line of the original."""
    name, number = "", 0
    for text in cpp.split("\n"):
        marker = MARKER.match(text)
        if marker:
            name, number = marker[2] if marker[2] is not None else name, int(marker[1])
            continue
        if number == line and name == file:
            yield text
        number += 1


def _place(frames) -> tuple[str, int]:
    """The innermost frame that is not of the shim."""
    for frame in frames:
        file, _, line = frame.rpartition(":")
        if line.isdigit() and not _is_shim(file):
            return original_name(file), int(line)
    return "", 0


def _is_shim(file) -> bool:
    return os.path.dirname(file) == str(SHIM)


@cache
def _addr2line() -> str:
    for name in ("addr2line", "llvm-addr2line"):
        path = shutil.which(name)
        if path:
            return path
    raise CompileError("metalsim needs addr2line, of binutils, to name a fault's line")
