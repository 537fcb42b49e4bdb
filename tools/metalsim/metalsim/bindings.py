"""The arguments of a launch, bound to a kernel's parameters."""

from __future__ import annotations

import numpy as np

from . import abi
from .buffers import Bound, bind
from .msl.declarations import Kernel


class Arguments:
    """The arguments of one launch, bound.

    Args:
        kernel: what is launched.
        types: of its parameters.
        enabled: says whether parameter i is bound.
        args, tg, out: as given to `Library.launch`.

    Raises:
        TypeError, ValueError: they do not fit the kernel.
    """

    def __init__(self, kernel: Kernel, types, enabled, args: dict, tg: dict | None, out):
        self._parameters = [p for p in kernel.parameters if p.is_buffer and not p.position]
        self._threadgroup = [p for p in kernel.parameters if p.address_space == "threadgroup"]
        types = dict(zip((id(p) for p in kernel.parameters), types))
        number = {id(p): i for i, p in enumerate(kernel.parameters)}
        self._tg = dict(tg or {})
        known = {key for p in self._parameters for key in (p.name, p.index)}
        for key in (*args, *out):
            if key not in known:
                names = ", ".join(f"{p.name} ({p.index})" for p in self._parameters)
                raise ValueError(f"no buffer {key!r}; kernel '{kernel.name}' has {names}")
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

    def fill(self, record: abi.LaunchRecord):
        """Enters the buffers into the record of a launch; they live as long as this object."""
        self._records = (abi.BufferRecord * max(len(self._buffers), 1))()
        for r, names in zip(self._records, self._buffers):
            memories = [self.bound[name].memory for name in names]
            r.host, r.bytes = memories[0].address, memories[0].nbytes
            r.initialized = any(m.initialized for m in memories)
            r.writable = any(name in self._writable for name in names)
            written = {m.written for m in memories if m.written}
            if len(written) > 1:
                raise ValueError(f"arguments {', '.join(names)}: one of them can be the output")
            for start, stop in written:
                r.must_start, r.must_stop = start, stop
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
                where = f"threadgroup argument '{p.name}' ({p.index})"
                raise ValueError(f"{where} has no size, which -t gives (tg in Python)")
            record.threadgroup_names[p.index] = p.name.encode()
            record.threadgroup_bytes[p.index] = nbytes
        if self._tg:
            raise ValueError(f"no threadgroup argument {', '.join(map(repr, self._tg))}")

    def write_back(self):
        """Copies what was written to where it belongs, if the launch had it elsewhere."""
        for bound in self.bound.values():
            if bound.array is not None and bound.array is not bound.holder:
                np.copyto(bound.array, bound.holder)

    def counts(self) -> dict[str, tuple[int, int]]:
        """By name, the bytes read and written."""
        records = {name: self._records[n] for name, n in self._numbers.items()}
        return {name: (r.read, r.written) for name, r in records.items()}
