"""Translates Metal kernels to CUDA text that NVRTC compiles without any header.

A kernel's parameters become its buffers by value or pointer, in the order of their indices; each
function constant becomes a constexpr whose value is a macro, FC_<index>, as is GROUP_SIZE, the
threads of a group. Whoever compiles the text defines these before it.
"""

from .translate import OPTIONS, KernelText, Parameter, translate

__all__ = ["OPTIONS", "KernelText", "Parameter", "translate"]
