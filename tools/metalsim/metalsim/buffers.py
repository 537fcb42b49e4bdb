"""Arguments of a launch, as buffers."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from .abi import TypeRecord


@dataclass(frozen=True)
class Memory:
    """Memory of the caller as one Metal buffer, bound at an offset.

    Arguments with the same address are the same buffer. Its copy begins on a page, whatever
    `address` is, and what the launch writes is copied back.

    Attributes:
        address: where the buffer begins.
        nbytes: its length.
        offset: byte at which it is bound.
        written: (start, stop) of the bytes of the buffer that the launch has to write.
        initialized: whether it holds values that may be read before they are written.
    """

    address: int
    nbytes: int
    offset: int = 0
    written: tuple[int, int] | None = None
    initialized: bool = True


@dataclass
class Bound:
    """An argument ready to be bound: where its buffer is, and what keeps that alive."""

    memory: Memory
    holder: object = None
    array: np.ndarray | None = None  # what it is to be written back to, where that is no Memory


def bind(name: str, value, type_: TypeRecord, output: bool) -> Bound:
    """Makes a buffer of an argument.

    Args:
        name: of the parameter.
        value: NumPy array or scalar, Python number, bytes or Memory.
        type_: what the parameter points to.
        output: whether the launch has to write all of it.

    Raises:
        TypeError: the value cannot be an argument, or an array's dtype is not the parameter's.
        ValueError: an array that is to be written cannot be, or a Memory's numbers disagree.
    """
    if isinstance(value, Memory):
        _check_memory(name, value)
        return Bound(value)
    if isinstance(value, (bytes, bytearray)):
        array = np.frombuffer(bytes(value), np.uint8)
    elif isinstance(value, np.ndarray) and value.ndim:
        _check_dtype(name, value.dtype, type_)
        array = value
    elif isinstance(value, (int, float, np.generic, np.ndarray)):
        array = scalar(name, value, type_)
    else:
        raise TypeError(
            f"argument '{name}' is a {type(value).__name__}; it has to be a NumPy array, a number,"
            " bytes or a Memory"
        )
    held = np.ascontiguousarray(array)
    writes = array is value and not type_.constant
    if output and not writes:
        raise ValueError(f"argument '{name}' is an output, but nothing that can be written")
    if writes and not value.flags.writeable:
        raise ValueError(f"argument '{name}' is read-only, and the kernel may write it")
    written = (0, held.nbytes) if output else None
    memory = Memory(held.ctypes.data, held.nbytes, written=written)
    return Bound(memory, held, value if writes else None)


def scalar(name: str, value, type_: TypeRecord) -> np.ndarray:
    """A number as the bytes of a parameter's or a function constant's type.

    Raises:
        TypeError: the type is no scalar, or an integer type does not have the value.
    """
    kind = type_.kind.decode()
    if type_.components != 1 or kind == "V":
        raise TypeError(f"argument '{name}' is not one number; pass an array or bytes")
    if kind == "B":
        return np.array(value) if isinstance(value, np.uint16) else bfloat16(np.float32(value))
    dtype = np.dtype(bool) if kind == "b" else np.dtype(f"{kind}{type_.bytes}")
    if kind in "iu":
        limits = np.iinfo(dtype)
        if value != int(value) or not limits.min <= value <= limits.max:
            raise TypeError(f"argument '{name}' is {value}, and the parameter a {dtype}")
    return np.array(value).astype(dtype)


def vector(name: str, values, type_: TypeRecord) -> np.ndarray:
    """Numbers as the bytes of a function constant of a vector type.

    Raises:
        TypeError: the type has another number of components, or no such values.
    """
    components = list(values)
    if len(components) != type_.components:
        raise TypeError(f"'{name}' takes {type_.components} numbers, not {len(components)}")
    single = TypeRecord(type_.kind, type_.constant, 1, type_.bytes)
    return np.array([scalar(name, value, single) for value in components])


def bfloat16(x: np.ndarray) -> np.ndarray:
    """float32 to the bits of bfloat16, to the nearest, ties to even."""
    bits = np.asarray(x, np.float32).view(np.uint32)
    rounded = (bits + 0x7FFF + (bits >> 16 & 1)) >> 16
    return np.where(np.isnan(x), bits >> 16 | 0x40, rounded).astype(np.uint16)


def _check_memory(name, memory):
    if memory.nbytes < 0 or not 0 <= memory.offset <= memory.nbytes:
        raise ValueError(
            f"argument '{name}': offset {memory.offset} is not in a buffer of {memory.nbytes} bytes"
        )
    if memory.written:
        start, stop = memory.written
        if not 0 <= start <= stop <= memory.nbytes:
            raise ValueError(
                f"argument '{name}': bytes {start} to {stop} are not in a buffer of"
                f" {memory.nbytes} bytes"
            )


def _check_dtype(name, dtype, type_):
    kind = type_.kind.decode()
    if kind == "V" or type_.bytes == 1:
        return
    wanted = {"B": "uint16 (bits of bfloat16)", "f": f"float{8 * type_.bytes}"}.get(
        kind, f"int{8 * type_.bytes} or uint{8 * type_.bytes}"
    )
    fits = dtype.itemsize == type_.bytes and (
        dtype.kind == "f"
        if kind == "f"
        else dtype == np.uint16
        if kind == "B"
        else dtype.kind in "iu"
    )
    if not fits:
        raise TypeError(f"argument '{name}' has dtype {dtype}; the kernel takes {wanted}")
