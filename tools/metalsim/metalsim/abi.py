"""The runtime's records, as state.h has them, and the runtime itself."""

from __future__ import annotations

import ctypes as c
from functools import cache

from .compiler import compile_runtime
from .msl.declarations import MAX_BINDINGS

MAX_FAULTS = 64


class Dim(c.Structure):
    _fields_ = [("x", c.c_uint32), ("y", c.c_uint32), ("z", c.c_uint32)]


class FaultRecord(c.Structure):
    _fields_ = [
        ("kind", c.c_char_p),
        ("count", c.c_uint32),
        ("line", c.c_uint32),
        ("column", c.c_uint32),
        ("file", c.c_char_p),
        ("pc", c.c_void_p),
        ("thread", c.c_uint32),
        ("group", Dim),
        ("buffer", c.c_char * 64),
        ("message", c.c_char * 200),
    ]


class BufferRecord(c.Structure):
    _fields_ = [
        ("host", c.c_void_p),
        ("bytes", c.c_uint64),
        ("initialized", c.c_uint32),
        ("writable", c.c_uint32),
        ("must_start", c.c_uint64),
        ("must_stop", c.c_uint64),
        ("read", c.c_uint64),
        ("written", c.c_uint64),
        ("base", c.c_void_p),
        ("cells", c.c_void_p),
        ("low", c.c_uint64),
        ("high", c.c_uint64),
        ("shift", c.c_uint32),
        ("touched", c.c_uint32),
        ("stride", c.c_uint64),
        ("views", c.c_uint32),
    ]


class BindingRecord(c.Structure):
    _fields_ = [
        ("name", c.c_char_p),
        ("buffer", c.c_int64),
        ("offset", c.c_uint64),
        ("address", c.c_void_p),
    ]


class LaunchRecord(c.Structure):
    _fields_ = [
        ("kernel", c.c_void_p),
        ("grid", c.c_uint32 * 3),
        ("group", c.c_uint32 * 3),
        ("nonuniform", c.c_uint32),
        ("check", c.c_uint32),
        ("order", c.c_uint32),
        ("fast_error", c.c_float),
        ("buffer_count", c.c_uint64),
        ("buffers", c.POINTER(BufferRecord)),
        ("bindings", BindingRecord * MAX_BINDINGS),
        ("threadgroup_names", c.c_char_p * MAX_BINDINGS),
        ("threadgroup_bytes", c.c_uint64 * MAX_BINDINGS),
        ("threads", c.c_uint64),
        ("threadgroups", c.c_uint64),
        ("barriers", c.c_uint64),
        ("simd_ops", c.c_uint64),
        ("threadgroup_used", c.c_uint64),
        ("fault_count", c.c_uint64),
        ("faults", FaultRecord * MAX_FAULTS),
    ]


class TypeRecord(c.Structure):
    """A scalar or vector type: NumPy's kind (B: bfloat), components and bytes of one."""

    _fields_ = [
        ("kind", c.c_char),
        ("constant", c.c_bool),
        ("components", c.c_uint16),
        ("bytes", c.c_uint32),
    ]


class ConstantRecord(c.Structure):
    """A function constant of a library."""


ConstantRecord._fields_ = [
    ("name", c.c_char_p),
    ("index", c.c_int64),
    ("type", TypeRecord),
    ("value", c.c_void_p),
    ("defined", c.c_bool),
    ("next", c.POINTER(ConstantRecord)),
]


@cache
def runtime() -> c.CDLL:
    """The runtime, built if need be and loaded."""
    lib = c.CDLL(str(compile_runtime()))
    lib.metalsim_state.restype = c.c_void_p
    for function, record in (
        (lib.metalsim_launch_bytes, LaunchRecord),
        (lib.metalsim_buffer_bytes, BufferRecord),
    ):
        function.restype = c.c_size_t
        if function() != c.sizeof(record):
            raise RuntimeError(f"{record.__name__} is not laid out as the runtime has it")
    lib.metalsim_run.argtypes = [c.POINTER(LaunchRecord)]
    lib.metalsim_run.restype = None
    return lib
