"""A compiled library, loaded."""

from __future__ import annotations

import ctypes as c
from functools import cached_property
from pathlib import Path

from . import abi
from .buffers import scalar, vector
from .lines import Lines


class Image:
    """A shared library with some of a source's kernels, loaded.

    Args:
        path: of the shared library.
        hosts: host names of its kernels, in the order of its entries.
        lines: what finds the lines of its faults.
    """

    def __init__(self, path: Path, hosts: tuple[str, ...], lines: Lines):
        self._lib = c.CDLL(str(path))
        self._number = {host: n for n, host in enumerate(hosts)}
        self._lib.metalsim_attach(c.c_void_p(abi.runtime().metalsim_state()))
        self._lib.metalsim_constants.restype = c.POINTER(abi.ConstantRecord)
        self.lines = lines

    def address(self, host) -> int:
        """Of the function that runs a thread of the kernel."""
        return c.cast(self._function("kernel", host), c.c_void_p).value

    def types(self, host):
        """Types of the kernel's parameters."""
        function = self._function("types", host)
        function.restype = c.POINTER(abi.TypeRecord)
        return function()

    def enabled(self, host):
        """Function that says whether the kernel's parameter i is bound, by the constants as set."""
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
        """Sets the function constants by index or name; those without a value are not defined.

        Raises:
            ValueError: there is no such constant.
            TypeError: a constant cannot have its value.
        """
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
                data = vector(name, value, record.type).tobytes()
                c.memmove(record.value, data, len(data))
            else:
                data = scalar(name, value, record.type).tobytes()
                c.memmove(record.value, data, len(data))
        self._lib.metalsim_compute_constants()
