"""A compiled Metal source and its launches."""

from __future__ import annotations

import ctypes as c
import math
import os
import threading
from pathlib import Path

from . import abi
from .absent import AbsentArguments
from .bindings import Arguments
from .compiler import compile_library, find_compiler, is_clang, preprocess
from .glue import glue
from .image import Image
from .lines import Lines
from .msl.declarations import declarations
from .msl.tokens import Tokens
from .result import Fault, Result
from .rewrite import rewrite

_CHUNK = 16  # kernels compiled at once
_launches = threading.Lock()


class Library:
    """A Metal source whose compute kernels can be launched.

    Args:
        path: the .metal file.
        include: folders for its includes, after its own.
        defines: macros, as "NAME" or "NAME=value".
        check: 0 fast, with guard pages only; 1 bounds, threadgroup memory, absent arguments, byte
            counts; 2 also races in device memory, uninitialized device memory, unwritten outputs.
        cxx: the compiler; None takes clang++ or, where there is none, g++.

    Raises:
        OSError: the file cannot be read.
        CompileError: no compiler is found, or the preprocessor refuses the source.
        SourceError: its declarations are not understood.
    """

    def __init__(self, path, include=(), defines=(), check=0, cxx=None):
        path = Path(path)
        folders = [path.resolve().parent, *include]
        self._read(path.read_text(), os.fspath(path), folders, defines, check, cxx)

    @classmethod
    def from_source(cls, text: str, name="source", include=(), defines=(), check=0, cxx=None):
        """A library of a text; `name` is what faults call it. Otherwise as `Library`."""
        self = cls.__new__(cls)
        self._read(text, name, list(include), defines, check, cxx)
        return self

    def _read(self, text, name, include, defines, check, cxx):
        if check not in (0, 1, 2):
            raise ValueError(f"the check level is 0, 1 or 2, not {check!r}")
        self.check = check
        self._compiler = find_compiler(cxx)
        tokens = Tokens(preprocess(text, name, self._compiler, include, defines), name)
        declared = declarations(tokens)
        self._absent = AbsentArguments(tokens, declared)
        self._macros, self._cpp, self._threadgroup_names = rewrite(
            tokens, declared, is_clang(self._compiler)
        )
        self._constants = {c.name: c.index for c in declared.constants}
        self._entries = dict(sorted(declared.entries.items()))
        by_kernel = sorted(self._entries, key=lambda host: (self._entries[host].kernel.line, host))
        chunks = [by_kernel[i : i + _CHUNK] for i in range(0, len(by_kernel), _CHUNK)]
        self._chunks = {host: tuple(chunk) for chunk in chunks for host in chunk}
        self._images = {}
        self._lock = threading.Lock()

    def kernels(self) -> list[str]:
        """Host names of the kernels."""
        return list(self._entries)

    def max_threads(self, name: str) -> int | None:
        """Threads of a threadgroup that a kernel declares as its limit; None if it does not.

        Raises:
            KeyError: there is no such kernel.
        """
        return self._entry(name).max_threads

    def constants(self) -> dict[str, int]:
        """Indices of the function constants by name, where they are numbers."""
        return {name: int(index) for name, index in self._constants.items() if index.isdigit()}

    def parameters(self, name: str) -> list[str]:
        """A line for each parameter of a kernel that is bound: its index and its declaration.

        Raises:
            KeyError: there is no such kernel.
        """
        lines = []
        for p in self._entry(name).kernel.parameters:
            if not p.position:
                condition = f", if {p.condition}" if p.condition else ""
                lines.append(
                    f"{'buffer' if p.is_buffer else 'threadgroup'} {p.index}{condition}: {p.text}"
                )
        return lines

    def bound(self, name: str, constants: dict) -> set[str]:
        """Names of the kernel's parameters that there are with these function constants.

        Raises:
            KeyError: there is no such kernel.
            TypeError, ValueError: a constant has no such value, or there is none of its name.
        """
        image = self._image(name)
        with _launches:
            image.set_constants(constants)
            return self._bound(name)

    def absent_named(self, name: str, constants: dict) -> list[Fault]:
        """Faults of the lines that name an argument which these function constants leave out.

        Raises:
            KeyError, TypeError, ValueError: as `bound` does.
        """
        image = self._image(name)
        with _launches:
            image.set_constants(constants)
            return self._absent_named(name, constants)

    def launch(
        self,
        name: str,
        args: dict,
        *,
        grid=None,
        groups=None,
        group=1,
        constants=None,
        tg=None,
        out=(),
        order: int = 0,
        fast_error: float = 0,
    ) -> Result:
        """Runs a kernel over a grid.

        Args:
            name: host name of the kernel.
            args: by parameter name or buffer index, a NumPy array (written in place; bfloat16 as
                uint16), a number, bytes or a Memory.
            grid: threads (dispatchThreads), as an int or up to three; or
            groups: threadgroups (dispatchThreadgroups).
            group: threads per threadgroup.
            constants: function constants by index or name.
            tg: bytes of the threadgroup arguments by index.
            out: names of the arrays that have to be written completely.
            order: the schedule. 0 runs threads as they come, 1 backwards, each other number
                permutes them in its own way, odd ones changing SIMD-groups at each SIMD operation.
            fast_error: how far results of metal::fast are off, in the errors that Metal permits.

        Raises:
            KeyError: there is no such kernel.
            TypeError, ValueError: an argument does not fit the kernel.
            CompileError: the compiler refuses the source.
        """
        entry = self._entry(name)
        if (grid is None) == (groups is None):
            raise ValueError("a launch takes either grid or groups")
        if order < 0:
            raise ValueError(f"the order is {order}; it has to be 0 or more")
        image = self._image(name)
        group = _three(group, "group")
        nonuniform = groups is None
        if groups is not None:
            grid = [a * b for a, b in zip(_three(groups, "groups"), group)]
        grid = _three(grid, "grid")
        with _launches:
            image.set_constants(constants or {})
            record = abi.LaunchRecord()
            record.kernel = image.address(name)
            record.group[:] = group
            record.grid[:] = grid
            record.nonuniform = nonuniform
            record.check, record.order = self.check, order
            record.fast_error = fast_error
            result = Result()
            limit = min(entry.max_threads or 1024, 1024)
            if math.prod(group) > limit:
                message = f"{math.prod(group)} threads per threadgroup, the limit is {limit}"
                place = entry.kernel.file, entry.kernel.line
                result.faults = [Fault("thread limit", name, message, *place)]
                return result
            if self.check:
                result.faults = self._absent_named(name, constants or {})
            launch = Arguments(entry.kernel, image.types(name), image.enabled(name), args, tg, out)
            launch.fill(record)
            abi.runtime().metalsim_run(c.byref(record))
            launch.write_back()
            result.faults += image.lines.faults(record, name, entry.kernel)
        result.bytes = launch.counts()
        for key in ("barriers", "simd_ops", "threads", "threadgroups"):
            setattr(result, key, getattr(record, key))
        result.threadgroup_bytes = record.threadgroup_used
        return result

    def _bound(self, name) -> set[str]:
        enabled = self._image(name).enabled(name)
        return {p.name for i, p in enumerate(self._entry(name).kernel.parameters) if enabled(i)}

    def _absent_named(self, name, constants) -> list[Fault]:
        kernel = self._entry(name).kernel
        absent = {p.name for p in kernel.parameters} - self._bound(name)
        names = {int(i): name for name, i in self._constants.items() if i.isdigit()}
        values = {names.get(key, key): value for key, value in constants.items()}
        return [
            Fault(
                kind="absent argument",
                kernel=name,
                message=f"'{at.name}' is named, which function constants leave out",
                file=at.file,
                line=at.line,
                buffer=at.name,
            )
            for at in self._absent.mentions(kernel, absent, values)
        ]

    def _entry(self, name):
        if name not in self._entries:
            known = ", ".join(self._entries) or "none"
            raise KeyError(f"no kernel '{name}'; there are: {known}")
        return self._entries[name]

    def _image(self, name) -> Image:
        chunk = self._chunks[name]
        with self._lock:
            if chunk not in self._images:
                cpp = self._cpp + glue({host: self._entries[host] for host in chunk})
                path = compile_library(self._macros, cpp, self._compiler, self.check > 0)
                self._images[chunk] = Image(path, chunk, Lines(path, cpp, self._threadgroup_names))
            return self._images[chunk]


def _three(extent, what) -> tuple[int, int, int]:
    three = tuple(extent) if isinstance(extent, (tuple, list)) else (extent,)
    three = tuple(int(n) for n in three) + (1,) * (3 - len(three))
    if len(three) != 3 or min(three) < 1 or max(three) >= 1 << 32:
        raise ValueError(f"{what} is {extent}; it has to be one to three positive numbers")
    return three
