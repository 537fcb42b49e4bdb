"""A software Metal device: runs the Metal code of an MLX extension on Linux.

An extension's own `eval_gpu` is compiled against MLX's Metal headers and metal-cpp, and linked to
a device that records what is encoded and runs it in `metalsim`, in the order of the primitive's
CPU stream. Anything that would fail in Metal or MLX is refused, in a sentence that names the
kernel.
"""

from .simulator import Launch, Simulator, start

__all__ = ["Launch", "Simulator", "start"]
