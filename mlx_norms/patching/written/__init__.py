"""Norms that models write themselves, in MLX's operations, computed by the ops of this package.

A class's ``__call__`` is read once without running it (``code``): it may do nothing but compute.
Then, for each kind of input, it is called on arrays without values, and the graph of its result is
matched with our norms (``recognition``). From then on calls of that kind are ours (``calls``).
"""

from .calls import left, replacement, reset, taken

__all__ = ["left", "replacement", "reset", "taken"]
