"""Kernel arguments as written on a command line."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import numpy as np

from .buffers import Memory, bfloat16

_DTYPES = "bool int8 uint8 int16 uint16 int32 uint32 int64 uint64 float16 bfloat16 float32".split()
FORMS = """\
values of -a:
  4096, 1e-5              a number, of the type that the kernel takes
  x.npy                   a NumPy file
  float32:64x768:normal   an array: data type, shape and, after a colon, what it holds: a number
                          (default: 0), normal, uniform, arange, or empty, which is memory that
                          the kernel has to write before it reads it. Data types are NumPy's names,
                          and bfloat16"""


class Argument:
    """One argument of a launch.

    Attributes:
        array: the array, or None for a number.
        value: what `Library.launch` takes.
    """

    def __init__(self, text: str):
        """Reads an argument of one of `FORMS`.

        Raises:
            ValueError: the text has another form.
            OSError: the file cannot be read.
        """
        self.array, self._is_bfloat16 = None, False
        if text.endswith(".npy"):
            self.array = np.load(Path(text))
            self.value = self.array
        elif ":" in text:
            parts = text.split(":")
            if len(parts) > 3:
                raise ValueError(f"'{text}' has more than two colons")
            dtype, shape, fill = (*parts, "0")[:3]
            self._is_bfloat16 = dtype == "bfloat16"
            self.array = _filled(dtype, shape, fill)
            self.value = self.array
            if fill == "empty":
                address, nbytes = self.array.ctypes.data, self.array.nbytes
                self.value = Memory(address, nbytes, initialized=False)
        else:
            self.value = number(text)

    def numbers(self) -> np.ndarray:
        """The array's values, bfloat16 as float32."""
        if self._is_bfloat16:
            return (self.array.astype(np.uint32) << 16).view(np.float32)
        return self.array


def number(text: str):
    """A bool, an int or a float.

    Raises:
        ValueError: the text is none of these.
    """
    if text in ("true", "false"):
        return text == "true"
    for read in (partial(int, base=0), float):
        try:
            return read(text)
        except ValueError:
            pass
    raise ValueError(f"'{text}' is no number")


def _filled(dtype, shape, fill) -> np.ndarray:
    if dtype not in _DTYPES:
        raise ValueError(f"'{dtype}' is none of {', '.join(_DTYPES)}")
    if not all(size.isdigit() for size in shape.split("x")):
        raise ValueError(f"'{shape}' is no shape, as 64 or 64x768")
    sizes = tuple(int(n) for n in shape.split("x"))
    random = np.random.default_rng(0)
    if fill in ("normal", "uniform"):
        values = random.normal(size=sizes) if fill == "normal" else random.random(sizes)
    elif fill == "arange":
        values = np.arange(np.prod(sizes)).reshape(sizes)
    else:
        try:
            values = np.full(sizes, 0 if fill == "empty" else number(fill))
        except ValueError:
            fills = "normal, uniform, arange, empty or a number"
            raise ValueError(f"'{fill}' is none of {fills}") from None
    return bfloat16(values.astype(np.float32)) if dtype == "bfloat16" else values.astype(dtype)
