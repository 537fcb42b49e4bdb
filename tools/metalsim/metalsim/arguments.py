"""Kernel arguments as written on a command line."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from .buffers import Memory, bfloat16

_DTYPES = "bool int8 uint8 int16 uint16 int32 uint32 int64 uint64 float16 bfloat16 float32".split()
FORMS = """\
  4096, 1e-5              a number, of the type that the kernel takes
  x.npy                   an array from a file
  float32:64x768:normal   an array by dtype, shape and fill. dtype: one of NumPy's, or bfloat16.
                          fill: a number, normal, uniform, arange, or empty, which holds nothing
                          that may be read; 0 where it is left out"""


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
            dtype, shape, fill = (text.split(":") + ["0"])[:3]
            self._is_bfloat16 = dtype == "bfloat16"
            self.array = _filled(dtype, shape, fill)
            self.value = self.array
            if fill == "empty":
                address, nbytes = self.array.ctypes.data, self.array.nbytes
                self.value = Memory(address, nbytes, initialised=False)
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
    try:
        return int(text, 0)
    except ValueError:
        return float(text)


def _filled(dtype, shape, fill) -> np.ndarray:
    if dtype not in _DTYPES:
        raise ValueError(f"'{dtype}' is none of {', '.join(_DTYPES)}")
    sizes = tuple(int(n) for n in shape.split("x"))
    random = np.random.default_rng(0)
    if fill in ("normal", "uniform"):
        values = random.normal(size=sizes) if fill == "normal" else random.random(sizes)
    elif fill == "arange":
        values = np.arange(np.prod(sizes)).reshape(sizes)
    else:
        values = np.full(sizes, 0 if fill == "empty" else number(fill))
    return bfloat16(values.astype(np.float32)) if dtype == "bfloat16" else values.astype(dtype)
