"""Functions made of a function by MLX's transforms, and the shapes of their arguments."""

from dataclasses import dataclass
from itertools import dropwhile

import mlx.core as mx

# What is done to an op, from the inside out.
CHAINS = (
    *((), ("vjp",), ("jvp",), ("vmap",)),
    *(("vjp", "vjp"), ("vjp", "jvp"), ("jvp", "vjp"), ("jvp", "jvp")),
    *(("vmap", "vjp"), ("vjp", "vmap"), ("vmap", "jvp"), ("jvp", "vmap"), ("vmap", "vmap")),
    *(("vjp", "vmap", "vjp"), ("vmap", "vjp", "vjp"), ("vjp", "vjp", "vmap")),
)
PATTERNS = ("all", "first", "rest", "alternate")


@dataclass(frozen=True)
class Derived:
    """A chain of transforms.

    Attributes:
        chain: One of `CHAINS`.
        wrt: The arguments of the op whose derivatives are taken, by number.
        pattern: Which arguments mx.vmap maps, one of `PATTERNS`.
        last: Whether it maps their last axes, else the first ones.
    """

    chain: tuple[str, ...]
    wrt: tuple[int, ...]
    pattern: str
    last: bool

    @property
    def maps_derivative(self):
        """Whether mx.vmap maps a derivative."""
        return "vmap" in dropwhile(lambda step: step == "vmap", self.chain)

    def of(self, f, arrays, size):
        """The function made of f, and arguments for it: zeros.

        Args:
            arrays: Arguments of f.
            size: That of the axes over which mx.vmap maps.
        """
        free = self.wrt
        for step in self.chain:
            if step == "vmap":
                axes = [self._axis(i, a, len(arrays)) for i, a in enumerate(arrays)]
                arrays = [widened(a, axis, size) for a, axis in zip(arrays, axes, strict=True)]
                f = mapped(f, axes)
                continue
            more = [arrays[i] for i in free] if step == "jvp" else f(*arrays)
            f = (jvp_of if step == "jvp" else vjp_of)(f, len(arrays), free)
            free = (*free, *range(len(arrays), len(arrays) + len(more)))
            arrays = [*arrays, *map(mx.zeros_like, more)]
        return f, arrays

    def _axis(self, i, a, count):
        maps = dict(all=True, first=i == 0, rest=i > 0 or count == 1, alternate=i % 2 == 0)
        return (a.ndim if self.last else 0) if maps[self.pattern] else None


def widened(a, axis, size):
    if axis is None:
        return a
    return mx.zeros((*a.shape[:axis], size, *a.shape[axis:]), a.dtype)


def mapped(f, axes):
    return lambda *arrays: mx.vmap(f, in_axes=tuple(axes))(*arrays)


def of_free(f, primals, free):
    def g(*values):
        arrays = list(primals)
        for i, a in zip(free, values, strict=True):
            arrays[i] = a
        return f(*arrays)

    return g, [primals[i] for i in free]


def vjp_of(f, count, free):
    def g(*arrays):
        of, at = of_free(f, arrays[:count], free)
        return mx.vjp(of, at, list(arrays[count:]))[1]

    return g


def jvp_of(f, count, free):
    def g(*arrays):
        of, at = of_free(f, arrays[:count], free)
        return mx.jvp(of, at, list(arrays[count:]))[1]

    return g
