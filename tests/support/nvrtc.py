"""NVIDIA's run-time compiler, from pip's nvidia-cuda-nvrtc; it needs neither a GPU nor a driver."""

import contextlib
import ctypes
import functools
import importlib.util
import re
from pathlib import Path


class Refused(Exception):
    """NVRTC cannot compile a source; the text is its log."""


@functools.cache
def library() -> ctypes.CDLL:
    """The library.

    Raises:
        FileNotFoundError: If nvidia-cuda-nvrtc is not installed.
    """
    nvidia = importlib.util.find_spec("nvidia")
    for folder in nvidia.submodule_search_locations if nvidia else ():
        for path in Path(folder).glob("cu13/lib/libnvrtc.so.13"):
            return ctypes.CDLL(str(path))
    raise FileNotFoundError("libnvrtc.so.13: pip install 'nvidia-cuda-nvrtc==13.*'")


def compile(source: str, expression: str, architecture: str, options=()) -> str:
    """The PTX of a kernel.

    Args:
        source: CUDA text.
        expression: The kernel's name, with its template arguments.
        architecture: compute_<n>.
        options: Options besides the architecture.

    Raises:
        Refused: If it does not compile.
    """
    with _compiled(source, expression, architecture, options) as program:
        return _read(program, "PTX")


def spilled_bytes(source: str, expression: str, architecture: str, options=()) -> int:
    """Bytes of registers that a thread of a kernel spills to memory.

    The arguments are those of :func:`compile`, but the architecture is a machine's: sm_<n>.
    """
    options = ("--ptxas-options=-v", *options)
    with _compiled(source, expression, architecture, options) as program:
        log = _read(program, "ProgramLog")
    return int(re.search(r"(\d+) bytes spill stores", log)[1])


@contextlib.contextmanager
def _compiled(source, expression, architecture, options):
    nvrtc, program = library(), ctypes.c_void_p()
    text = source.encode()
    assert nvrtc.nvrtcCreateProgram(ctypes.byref(program), text, b"kernel", 0, None, None) == 0
    try:
        assert nvrtc.nvrtcAddNameExpression(program, expression.encode()) == 0
        given = [f"--gpu-architecture={architecture}".encode(), *(o.encode() for o in options)]
        array = (ctypes.c_char_p * len(given))(*given)
        if nvrtc.nvrtcCompileProgram(program, len(given), array) != 0:
            raise Refused(_read(program, "ProgramLog"))
        yield program
    finally:
        nvrtc.nvrtcDestroyProgram(ctypes.byref(program))


def _read(program, what: str) -> str:
    size = ctypes.c_size_t()
    assert getattr(library(), f"nvrtcGet{what}Size")(program, ctypes.byref(size)) == 0
    text = ctypes.create_string_buffer(size.value)
    assert getattr(library(), f"nvrtcGet{what}")(program, text) == 0
    return text.value.decode()
