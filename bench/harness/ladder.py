"""The two ladders, layer norm and float32 matmul, with a kernel per rung."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import mlx.core as mx

from mlx_norms import ladders

from . import peers
from .configs import DTYPES, EPS, Config
from .providers import Calls, copies, sets_needed, torch_calls


@dataclass(frozen=True)
class Product:
    """C = A·B of square float32 matrices."""

    rows: int

    op = "sgemm"
    dtype = "float32"
    backward = False

    @property
    def length(self) -> int:
        return self.rows

    @property
    def elements(self) -> int:
        return self.rows**2

    @property
    def output_bytes(self) -> int:
        return 4 * self.elements

    @property
    def input_bytes(self) -> int:
        return 8 * self.elements

    set_bytes = input_bytes

    @property
    def working_bytes(self) -> int:
        return 2 * self.output_bytes

    @property
    def moved(self) -> int:
        return 12 * self.elements

    compulsory = moved

    @property
    def flops(self) -> int:
        return 2 * self.rows**3

    def shapes(self) -> dict[str, tuple[int, ...]]:
        return dict.fromkeys(("a", "b"), (self.rows, self.rows))

    def inputs(self) -> list[mx.array]:
        return [mx.random.normal(shape) for shape in self.shapes().values()]


def rungs(config: Config | Product) -> list[ladders.Rung]:
    """The rungs of the config's ladder that accept its dtype, in order."""
    ladder = ladders.SGEMM if config.op == "sgemm" else ladders.LAYER_NORM
    return [rung for rung in ladder if DTYPES[config.dtype] in rung.dtypes]


def function(config: Config | Product, rung: str):
    """A rung as a function of the config's arrays."""
    if config.op == "sgemm":
        return lambda a, b: ladders.sgemm(a, b, rung=rung)
    return lambda x, w, b: ladders.layer_norm(x, w, b, EPS, rung=rung)


def providers(config: Config | Product, peer_names: Iterable[str], *, hot: bool) -> dict:
    """Providers by name: the rungs, MLX's own op, and the peers that have the op."""
    count = sets_needed(config.input_bytes, hot)
    sets = copies(config.inputs(), count)
    multiplies = config.op == "sgemm"
    functions = {rung.name: function(config, rung.name) for rung in rungs(config)}
    if multiplies:
        functions["mlx"] = mx.matmul
    elif "mx.fast" in peer_names:
        functions["mx.fast"] = lambda x, w, b: mx.fast.layer_norm(x, w, b, EPS)
    found = {name: Calls(f, sets, None, config.output_bytes) for name, f in functions.items()}
    for name in peer_names:
        op = "matmul" if multiplies else config.op
        if name != "mx.fast" and (peer := peers.FUNCTIONS[name]().get(op)):
            found[name] = torch_calls(config, peer, count)
    return found


def fixes(config: Config | Product) -> dict[str, str]:
    """What each rung fixes, by name."""
    return {rung.name: rung.fixes for rung in rungs(config)}
