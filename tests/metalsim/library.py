"""A compiled Metal source and its launches."""

from __future__ import annotations

import ctypes as c
import math
import os
import threading
from functools import cached_property
from pathlib import Path

import numpy as np

from . import abi
from .buffers import Bound, bind, scalar
from .compiler import CompileError, compile_library, find_compiler, is_clang, preprocess
from .glue import glue
from .lines import Lines
from .msl import declarations
from .result import Fault, Result
from .rewrite import rewrite
from .tokens import Tokens

_CHUNK = 16  # kernels compiled at once
_launches = threading.Lock()


class Library:
    """A Metal source whose compute kernels can be launched.

    Args:
        path: the .metal file.
        include: folders for its includes, after its own.
        defines: macros, as "NAME" or "NAME=value".
        check: 0 fast, with guard pages only; 1 bounds, threadgroup memory, byte counts; 2 also
            races in device memory, uninitialised device memory, unwritten outputs.
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
        self._macros, self._cpp = rewrite(tokens, declared, is_clang(self._compiler))
        self._threadgroup_names = declared.threadgroup_variables
        self._entries = dict(sorted(declared.entries.items()))
        by_kernel = sorted(self._entries, key=lambda host: (self._entries[host].kernel.line, host))
        chunks = [by_kernel[i : i + _CHUNK] for i in range(0, len(by_kernel), _CHUNK)]
        self._chunks = {host: tuple(chunk) for chunk in chunks for host in chunk}
        self._images = {}
        self._lock = threading.Lock()

    def kernels(self) -> list[str]:
        """Host names of the kernels."""
        return list(self._entries)

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
    ) -> Result:
        """Runs a kernel over a grid.

        Args:
            name: host name of the kernel.
            args: by parameter name or buffer index, a NumPy array (written in place; bfloat16 as
                uint16), a number, bytes or a Memory.
            grid: threads (dispatchThreads), as an int or up to three; or
            groups: threadgroups (dispatchThreadgroups).
            group: threads a threadgroup.
            constants: function constants by index or name.
            tg: bytes of the threadgroup arguments by index.
            out: names of the arrays that have to be written completely.
            order: the schedule. 0 runs threads as they come, 1 backwards, each other number
                permutes them in its own way, odd ones changing SIMD-groups at each SIMD operation.

        Raises:
            KeyError: there is no such kernel.
            TypeError, ValueError: an argument does not fit the kernel.
            CompileError: the compiler refuses the source.
        """
        entry = self._entry(name)
        if (grid is None) == (groups is None):
            raise ValueError("a launch takes either grid or groups")
        image = self._image(name)
        group = _three(group, "group")
        extent = _three(grid if groups is None else groups, "groups" if grid is None else "grid")
        with _launches:
            image.set_constants(constants or {})
            record = abi.LaunchRecord()
            record.kernel = image.address(name)
            record.group[:] = group
            record.grid[:] = [a * b for a, b in zip(extent, group)] if grid is None else extent
            record.nonuniform = grid is not None
            record.check, record.order = self.check, order
            result = Result()
            limit = min(entry.max_threads or 1024, 1024)
            if math.prod(group) > limit:
                message = f"{math.prod(group)} threads a threadgroup, the limit is {limit}"
                place = entry.kernel.file, entry.kernel.line
                result.faults = [Fault("thread limit", name, message, *place)]
                return result
            launch = _Arguments(entry, image.types(name), image.enabled(name), args, tg, out)
            launch.fill(record)
            abi.runtime().metalsim_run(c.byref(record))
            launch.write_back()
            result.faults = image.lines.faults(record, name, entry.kernel)
        result.bytes = launch.counts()
        for key in ("barriers", "simd_ops", "threads", "threadgroups"):
            setattr(result, key, getattr(record, key))
        result.threadgroup_bytes = record.threadgroup_used
        return result

    def _entry(self, name):
        if name not in self._entries:
            known = ", ".join(self._entries) or "none"
            raise KeyError(f"no kernel '{name}'; there are: {known}")
        return self._entries[name]

    def _image(self, name) -> _Image:
        chunk = self._chunks[name]
        with self._lock:
            if chunk not in self._images:
                cpp = self._cpp + glue({host: self._entries[host] for host in chunk})
                path = compile_library(self._macros, cpp, self._compiler, self.check > 0)
                self._images[chunk] = _Image(path, chunk, Lines(path, cpp, self._threadgroup_names))
            return self._images[chunk]


class _Image:
    """A loaded shared library with some of the kernels."""

    def __init__(self, path, hosts, lines):
        self._lib = c.CDLL(str(path))
        self._number = {host: n for n, host in enumerate(hosts)}
        self._lib.metalsim_attach(c.c_void_p(abi.runtime().metalsim_state()))
        self._lib.metalsim_constants.restype = c.POINTER(abi.ConstantRecord)
        self.lines = lines

    def address(self, host) -> int:
        return c.cast(self._function("kernel", host), c.c_void_p).value

    def types(self, host):
        function = self._function("types", host)
        function.restype = c.POINTER(abi.TypeRecord)
        return function()

    def enabled(self, host):
        function = self._function("enabled", host)
        function.restype = c.c_bool
        return function

    def _function(self, what, host):
        return getattr(self._lib, f"metalsim_{what}_{self._number[host]}")

    @cached_property
    def _constants(self) -> list[abi.ConstantRecord]:
        found, pointer = [], self._lib.metalsim_constants()
        while pointer:
            found.append(pointer.contents)
            pointer = pointer.contents.next
        return found

    def set_constants(self, values: dict):
        known = {key for r in self._constants for key in (r.index, r.name.decode())}
        for key in values:
            if key not in known:
                raise ValueError(f"no function constant {key!r}")
        for record in self._constants:
            name = record.name.decode()
            value = values.get(name, values.get(record.index))
            record.defined = value is not None
            if value is None:
                size = record.type.bytes * record.type.components
                c.memset(record.value, 0, size)
            elif record.type.components > 1:
                kind = np.dtype(f"{record.type.kind.decode()}{record.type.bytes}")
                data = np.array(value, kind).tobytes()
                c.memmove(record.value, data, len(data))
            else:
                data = scalar(name, value, record.type).tobytes()
                c.memmove(record.value, data, len(data))
        self._lib.metalsim_compute_constants()


class _Arguments:
    """The arguments of one launch, bound."""

    def __init__(self, entry, types, enabled, args, tg, out):
        self._parameters = [p for p in entry.kernel.parameters if p.is_buffer and not p.position]
        self._threadgroup = [
            p for p in entry.kernel.parameters if p.address_space == "threadgroup"
        ]
        types = dict(zip((id(p) for p in entry.kernel.parameters), types))
        number = {id(p): i for i, p in enumerate(entry.kernel.parameters)}
        self._tg = dict(tg or {})
        known = {key for p in self._parameters for key in (p.name, p.index)}
        for key in (*args, *out):
            if key not in known:
                names = ", ".join(f"{p.name} ({p.index})" for p in self._parameters)
                raise ValueError(f"no buffer {key!r}; kernel '{entry.kernel.name}' has {names}")
        self.bound: dict[str, Bound] = {}
        self._writable = set()
        for p in self._parameters:
            value = args.get(p.name, args.get(p.index))
            if value is None:
                if enabled(number[id(p)]):
                    raise ValueError(f"buffer '{p.name}' ({p.index}) is not bound")
                continue
            type_ = types[id(p)]
            self.bound[p.name] = bind(p.name, value, type_, p.name in out or p.index in out)
            if not type_.constant:
                self._writable.add(p.name)
        self._number_buffers()

    def _number_buffers(self):
        by_address, self._numbers, self._buffers = {}, {}, []
        for name, bound in self.bound.items():
            memory = bound.memory
            key = (memory.address, memory.nbytes)
            if key not in by_address:
                by_address[key] = len(self._buffers)
                self._buffers.append([])
            self._numbers[name] = by_address[key]
            self._buffers[by_address[key]].append(name)
        spans = sorted((a, a + n, self._buffers[k][0]) for (a, n), k in by_address.items() if n)
        for (_, stop, left), (start, _, right) in zip(spans, spans[1:]):
            if start < stop:
                raise ValueError(
                    f"arguments '{left}' and '{right}' overlap, but are not the same memory; pass"
                    " Memory of one buffer with offsets"
                )

    def fill(self, record):
        self._records = (abi.BufferRecord * max(len(self._buffers), 1))()
        for r, names in zip(self._records, self._buffers):
            memories = [self.bound[name].memory for name in names]
            r.host, r.bytes = memories[0].address, memories[0].nbytes
            r.initialised = any(m.initialised for m in memories)
            r.writable = any(name in self._writable for name in names)
            written = [m.written for m in memories if m.written]
            if len(written) > 1:
                raise ValueError(f"arguments {', '.join(names)}: one of them can be the output")
            if written:
                r.must_start, r.must_stop = written[0]
        record.buffers, record.buffer_count = self._records, len(self._buffers)
        for binding in record.bindings:
            binding.buffer = -1
        for p in self._parameters:
            binding = record.bindings[p.index]
            binding.name = p.name.encode()
            if p.name in self.bound:
                binding.buffer = self._numbers[p.name]
                binding.offset = self.bound[p.name].memory.offset
        for p in self._threadgroup:
            nbytes = self._tg.pop(p.index, self._tg.pop(p.name, None))
            if not nbytes:
                raise ValueError(f"threadgroup memory '{p.name}' ({p.index}) has no size in tg")
            record.threadgroup_names[p.index] = p.name.encode()
            record.threadgroup_bytes[p.index] = nbytes
        if self._tg:
            raise ValueError(f"no threadgroup memory {', '.join(map(repr, self._tg))}")

    def write_back(self):
        for bound in self.bound.values():
            if bound.array is not None and bound.array is not bound.holder:
                np.copyto(bound.array, bound.holder)

    def counts(self) -> dict[str, tuple[int, int]]:
        records = {name: self._records[n] for name, n in self._numbers.items()}
        return {name: (r.read, r.written) for name, r in records.items()}


def _three(extent, what) -> tuple[int, int, int]:
    three = (extent,) if np.isscalar(extent) else tuple(extent)
    three = tuple(int(n) for n in three) + (1,) * (3 - len(three))
    if len(three) != 3 or min(three) < 1 or max(three) >= 1 << 32:
        raise ValueError(f"{what} is {extent}; it has to be one to three positive numbers")
    return three


__all__ = ["CompileError", "Library"]
