"""Translates Metal kernels to CUDA text that NVRTC compiles without any header.

A kernel's arguments are passed as two structures, by value. Each function constant becomes a
constexpr whose value is the macro FC_<index>; GROUP_SIZE, the threads per threadgroup, is a macro,
too. Whoever compiles the text defines these macros in front of it.
"""

from .translate import OPTIONS, KernelText, Parameters, translate

__all__ = ["OPTIONS", "KernelText", "Parameters", "translate"]
