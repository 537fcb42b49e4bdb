"""What the table says of an op."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial

import mlx.core as mx

import mlx_norms

from . import exact, stock

EPS = 1e-5


@dataclass(frozen=True)
class Op:
    """An op with some of its operands and options, and MLX's chain of ops that computes the same.

    Attributes:
        name: The op's, and what tells it from the others of the op.
        function: The name of a function of this package; or one of arrays by name.
        chain: A function of ``stock`` or ``exact``, which have the steps, and of the same arrays
            and options by name; it returns an array or several.
        axes: The axes of each array, a letter each, "1" for one of size 1.
        options: Those that the function and the chain take.
        multiple: What the sizes of some axes are multiples of.
        kept: Axes whose sizes a compiled function keeps.
        fixed: The only sizes of some axes.
        backends: Where it is ours, elsewhere MLX's own function; None: everywhere.
    """

    name: str
    function: str | Callable
    chain: Callable
    axes: dict[str, str]
    options: dict = field(default_factory=dict)
    multiple: dict[str, int] = field(default_factory=dict)
    kept: str = ""
    fixed: dict[str, int] = field(default_factory=dict)
    backends: tuple[str, ...] | None = None

    def __str__(self) -> str:
        return self.name

    @property
    def inputs(self) -> tuple[str, ...]:
        """The names of the arrays, in order."""
        return tuple(self.axes)

    @property
    def letters(self) -> list[str]:
        return sorted({c for axes in self.axes.values() for c in axes if c.isalpha()})

    @property
    def adds(self) -> bool:
        return "residual" in self.axes

    def shape(self, name: str, sizes: dict[str, int]) -> tuple[int, ...]:
        """Of one of its arrays, for sizes of the axes by letter."""
        sizes = self.fixed | sizes
        return tuple(1 if c == "1" else sizes[c] for c in self.axes[name])

    def ours(self, **options) -> Callable[..., list[mx.array]]:
        """The op as a function of its arrays in order; ``options`` replace the table's."""
        return partial(self._ours, options)

    def stock(self, **options) -> Callable[..., list[mx.array]]:
        """The same by MLX's ops."""
        return self.chain_of(stock, **options)

    def chain_of(self, steps: object, **options) -> Callable[..., list]:
        """The chain of other steps, which have the names of those of ``stock``."""
        return partial(self._chain, steps, options)

    def exact(self, **options) -> Callable[..., list[exact.Exact]]:
        """The same in float64, with what the errors of a result are relative to, on the CPU.

        Arrays of float64 are taken as they are; of others, sums that an op rounds are rounded.
        """
        return lambda *arrays: self._exact(options, arrays)

    def values(self, **options) -> Callable[..., list[mx.array]]:
        """The values of `exact` alone, which MLX's transforms take derivatives of."""
        return lambda *arrays: [result.value for result in self.exact(**options)(*arrays)]

    def gradients(self, arrays, cotangents, sizes=None, **options) -> list[tuple[mx.array, ...]]:
        """Of each array in float64, and the sum of magnitudes that its errors are relative to."""
        return exact.gradients(partial(self._exact, options, arrays), arrays, cotangents, sizes)

    def _exact(self, options: dict, arrays, values=None, ways=None) -> list[exact.Exact]:
        options = self.options | options
        late, to = options.pop("rounding", None), options.pop("dtype", None)
        late = late == "late" or (late is None and bool(options.get("weight_offset")))
        named = self._named(arrays)
        last = "residual" if self.adds else self.inputs[0]  # of what is normalized
        of_rows = to or named.get("x", arrays[0]).dtype
        of_rows = of_rows if of_rows in exact.ROUNDOFF else mx.float32
        of = []
        for i, (name, a) in enumerate(named.items()):
            more = dict(to=to) if name in ("residual", "z", "k", "v") else {}
            if name == last != "residual":
                more = dict(to=of_rows)
            if name in ("weight", "bias"):
                more = dict(dtype=of_rows)  # a kernel's own steps are no wider
            value, way = values[i] if values else None, ways[i] if ways else 0.0
            of.append(exact.given(a, late=late, value=value, way=way, **more))
        named = dict(zip(named, of, strict=True))
        return flat(self.chain(exact, **named, **{"eps": EPS} | options))

    def _ours(self, options: dict, *arrays: mx.array) -> list[mx.array]:
        f = getattr(mlx_norms, self.function) if isinstance(self.function, str) else self.function
        return flat(f(**self._named(arrays), **self.options | {"eps": EPS} | options))

    def _chain(self, steps: object, options: dict, *arrays):
        named = self._named(arrays)
        return flat(self.chain(steps, **named, **self.options | {"eps": EPS} | options))

    def _named(self, arrays):
        return dict(zip(self.axes, arrays, strict=True))


def flat(out: object) -> list:
    """The results of an op in one list."""
    if isinstance(out, tuple | list):
        return [a for part in out for a in flat(part)]
    return [out]


OPS: dict[str, Op] = {}


def op(name: str, function: str | Callable, chain: Callable, axes: dict[str, str], **more) -> None:
    """Adds an op to the table."""
    OPS[name] = Op(name, function, chain, axes, **more)
