"""Translates Metal kernels to CUDA text that NVRTC compiles without any header.

A kernel's arguments are passed as two structures, by value; each function constant becomes a
constexpr whose value is a macro, FC_<index>, as is GROUP_SIZE, the threads of a group. Whoever
compiles the text defines these before it.
"""

from .translate import OPTIONS, KernelText, Parameters, translate

__all__ = ["OPTIONS", "KernelText", "Parameters", "translate"]
