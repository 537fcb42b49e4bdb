"""Norms that models write themselves, in MLX's operations, computed by the ops of this package.

The code of a layer or a function is read once without running it (``code``): it may do nothing but
compute. Then, for each kind of input, it is called on arrays without values, and the graph of its
result is matched with our norms (``recognition``). From then on calls of that kind are ours
(``plans``).
"""

from .plans import left, reset, taken

__all__ = ["left", "reset", "taken"]
