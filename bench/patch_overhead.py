"""Times what patching adds to a call of a norm on the host: building the graph, evaluating nothing.

A patched call of mx.fast is compared with the same by mlx_norms' own functions, which never fuse.
"extra" is the difference in microseconds, round by round. The exit status is 1 if one is above its
target. mx.fast itself, at the end, is there for scale: on the CPU it composes a norm of several
operations, and builds a node for each.
"""

from __future__ import annotations

import argparse
import contextlib
import functools
import gc
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass

import mlx.core as mx
from rich.console import Console
from rich.progress import track
from rich.table import Table

import mlx_norms
from mlx_norms._bench import machine, timing

CALLS = 2000
ROUNDS = 101
EPS = 1e-5
NOT_FUSED, FUSED = 1.0, 1.5  # targets, in microseconds

X, R, W, B = (mx.random.normal(shape) for shape in ((8, 64), (8, 64), (64,), (64,)))
# A pending weight behind more nodes than are searched for the sum, and in vain.
DEEP = functools.reduce(lambda weight, _: mx.abs(weight), range(20), W)


# Each is called with mlx_norms, and with mx.fast while patched. They return all that they make, so
# that nothing is freed while the time runs.


def rms(norms):
    return norms.rms_norm(X, W, EPS)


def rms_of_product(norms):
    h = X * R
    return h, norms.rms_norm(h, W, EPS)


def rms_of_sum(norms):
    h = X + R
    return h, norms.rms_norm(h, W, EPS)


def rms_of_sum_deep_weight(norms):
    h = X + R
    return h, norms.rms_norm(h, DEEP, EPS)


def rms_one_plus_weight(norms):
    weight = 1 + W
    return weight, norms.rms_norm(X, weight, EPS)


def layer(norms):
    return norms.layer_norm(X, W, B, EPS)


def layer_of_sum(norms):
    h = X + R
    return h, norms.layer_norm(h, W, B, EPS)


@dataclass(frozen=True)
class Row:
    name: str
    call: Callable[[object], object]
    target: float | None
    fuse: bool = True
    fuses: bool = False

    def patched(self) -> contextlib.AbstractContextManager:
        return mlx_norms.patched(fuse=self.fuse)

    def check(self) -> None:
        """See that what is timed is what the name says."""
        with self.patched():
            self.call(mx.fast)
            fused = mlx_norms.report().fused
        if fused != int(self.fuses):
            raise SystemExit(f"{self.name}: {fused} of 1 call was fused.")


ROWS = [
    Row("rms_norm", rms, NOT_FUSED),
    Row("rms_norm of a pending product", rms_of_product, NOT_FUSED),
    Row("rms_norm of a sum, weight too deep", rms_of_sum_deep_weight, NOT_FUSED),
    Row("rms_norm of a sum, fuse=False", rms_of_sum, NOT_FUSED, fuse=False),
    Row("rms_norm of a sum, fused", rms_of_sum, FUSED, fuses=True),
    Row("rms_norm, weight 1 + w", rms_one_plus_weight, None),
    Row("layer_norm", layer, NOT_FUSED),
    Row("layer_norm of a sum, fused", layer_of_sum, FUSED, fuses=True),
]
STOCK = [rms, layer]


@dataclass(frozen=True)
class Contestant:
    call: Callable[[object], object]
    norms: object
    scope: Callable[[], contextlib.AbstractContextManager] = contextlib.nullcontext

    def microseconds(self) -> float:
        """The time a call takes of building many graphs, which are dropped after it."""
        call, norms, results = self.call, self.norms, [None] * CALLS
        with self.scope():
            start = time.perf_counter()
            for i in range(CALLS):
                results[i] = call(norms)
            return (time.perf_counter() - start) / CALLS * 1e6


def measure(console: Console) -> dict[tuple[str, str], timing.Samples]:
    """Microseconds a call, by the names of row and side."""
    contestants = {}
    for row in ROWS:
        contestants[row.name, "plain"] = Contestant(row.call, mlx_norms)
        contestants[row.name, "patched"] = Contestant(row.call, mx.fast, row.patched)
    for call in STOCK:
        contestants[call.__name__, "stock"] = Contestant(call, mx.fast)
    values: dict[tuple[str, str], list[float]] = {name: [] for name in contestants}
    for name in track(
        list(timing.turns(contestants, ROUNDS)),
        "measuring",
        console=console,
        disable=not console.is_terminal,
    ):
        values[name].append(contestants[name].microseconds())
    return {name: timing.Samples(tuple(samples)) for name, samples in values.items()}


def difference(samples: timing.Samples, others: timing.Samples) -> timing.Samples:
    pairs = zip(samples.values, others.values, strict=True)
    return timing.Samples(tuple(mine - its for mine, its in pairs))


def spread(samples: timing.Samples) -> str:
    lower, upper = samples.quartiles
    return f"{samples.median:.2f} ({lower:.2f} to {upper:.2f})"


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.parse_args()
    mx.eval(X, R, W, B)  # not DEEP
    for row in ROWS:
        row.check()
    console = Console()
    if not console.is_terminal:
        console = Console(width=120)
    console.print(", ".join(f"{key} {value}" for key, value in machine.facts().items()))
    gc.disable()
    samples = measure(Console(stderr=True))
    gc.enable()

    missed = []
    table = Table(title="Host time of a call, µs: median (quartiles)", title_justify="left")
    for heading in ("", "mlx_norms", "patched", "extra", "target"):
        table.add_column(heading, justify="right" if heading else "left")
    for row in ROWS:
        plain, patched = samples[row.name, "plain"], samples[row.name, "patched"]
        extra = difference(patched, plain)
        if row.target is not None and extra.median >= row.target:
            missed.append(row.name)
        target = "" if row.target is None else f"under {row.target}"
        table.add_row(row.name, spread(plain), spread(patched), spread(extra), target)
    table.add_section()
    for call in STOCK:
        stock = samples[call.__name__, "stock"]
        table.add_row(f"mx.fast.{call.__name__}_norm itself", spread(stock))
    console.print(table)
    console.print(
        f"Above the target: {', '.join(missed)}." if missed else "All within the targets."
    )
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
