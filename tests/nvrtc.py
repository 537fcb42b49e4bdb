"""NVIDIA's run-time compiler, of pip's nvidia-cuda-nvrtc: it needs neither a GPU nor a driver."""

import ctypes
import functools
import importlib.util
from pathlib import Path


class Refused(Exception):
    """NVRTC does not compile it; its log."""


@functools.cache
def library() -> ctypes.CDLL:
    """The library.

    Raises:
        FileNotFoundError: If nvidia-cuda-nvrtc is not installed.
    """
    for folder in importlib.util.find_spec("nvidia").submodule_search_locations:
        for path in Path(folder).glob("cu13/lib/libnvrtc.so.13"):
            return ctypes.CDLL(str(path))
    raise FileNotFoundError("nvidia-cuda-nvrtc 13")


def compile(source: str, expression: str, architecture: str, options=()) -> tuple[bytes, str]:
    """PTX for compute_<n>, machine code for sm_<n>, and the compiler's log.

    Args:
        source: CUDA text.
        expression: name of the kernel that is wanted, with its template arguments.
        architecture: compute_<n> or sm_<n>.
        options: besides the architecture.

    Raises:
        Refused: If it does not compile.
    """
    nvrtc, program = library(), ctypes.c_void_p()
    text = source.encode()
    assert nvrtc.nvrtcCreateProgram(ctypes.byref(program), text, b"kernel", 0, None, None) == 0
    try:
        assert nvrtc.nvrtcAddNameExpression(program, expression.encode()) == 0
        given = [f"--gpu-architecture={architecture}", *options]
        array = (ctypes.c_char_p * len(given))(*(o.encode() for o in given))
        result = nvrtc.nvrtcCompileProgram(program, len(given), array)
        log = _read(program, "ProgramLog").decode()
        if result != 0:
            raise Refused(log)
        name = ctypes.c_char_p()
        lowered = nvrtc.nvrtcGetLoweredName(program, expression.encode(), ctypes.byref(name))
        assert lowered == 0
        return _read(program, "CUBIN" if architecture.startswith("sm_") else "PTX"), log
    finally:
        nvrtc.nvrtcDestroyProgram(ctypes.byref(program))


def _read(program, what: str) -> bytes:
    size = ctypes.c_size_t()
    assert getattr(library(), f"nvrtcGet{what}Size")(program, ctypes.byref(size)) == 0
    buffer = ctypes.create_string_buffer(size.value)
    assert getattr(library(), f"nvrtcGet{what}")(program, buffer) == 0
    return buffer.raw[: size.value].rstrip(b"\0") if what != "CUBIN" else buffer.raw
