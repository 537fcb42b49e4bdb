"""Times what patching adds to a call of a norm on the host: building the graph, evaluating nothing.

A patched call of mx.fast is compared with the same call of mlx_norms' own functions, which never
fuse. "extra" is the difference in microseconds, round by round; each above its target is named.
mx.fast itself is listed last, for scale: on the CPU it composes a norm of several ops, and builds a
node for each.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass

import mlx.core as mx

import mlx_norms
from mlx_norms._bench.script import Script
from mlx_norms._bench.tables import table
from mlx_norms._bench.timing import Runs, Samples, measure

CALLS = 2000
ROUNDS = 101
EPS = 1e-5
NOT_FUSED, FUSED = 1.0, 1.5  # targets, in microseconds

X, R, W, B = (mx.random.normal(shape) for shape in ((8, 64), (8, 64), (64,), (64,)))
# A pending weight behind more nodes than the search for the add looks at.
DEEP = functools.reduce(lambda weight, _: mx.abs(weight), range(20), W)


def of(x, norm: Callable, *parameters: mx.array) -> tuple:
    """A norm and all arrays made for it, so that nothing is freed while the clock runs."""
    return x, parameters, norm(x, *parameters, EPS)


@dataclass(frozen=True)
class Row:
    name: str
    call: Callable[[object], object]
    target: float | None
    fuse: bool = True
    fuses: bool = False

    def patched(self):
        return mlx_norms.patched(fuse=self.fuse)

    def check(self) -> None:
        """Check that the call does what its name says."""
        with self.patched():
            self.call(mx.fast)
            fused = mlx_norms.report().fused
        if fused != int(self.fuses):
            raise SystemExit(f"{self.name}: {fused} of 1 call was fused.")


# Each is called with mlx_norms, and with mx.fast while patched.
ROWS = [
    Row("rms_norm", lambda n: of(X, n.rms_norm, W), NOT_FUSED),
    Row("rms_norm of a pending product", lambda n: of(X * R, n.rms_norm, W), NOT_FUSED),
    Row("rms_norm of a sum, weight too deep", lambda n: of(X + R, n.rms_norm, DEEP), NOT_FUSED),
    Row("rms_norm of a sum, fuse=False", lambda n: of(X + R, n.rms_norm, W), NOT_FUSED, fuse=False),
    Row("rms_norm of a sum, fused", lambda n: of(X + R, n.rms_norm, W), FUSED, fuses=True),
    Row("rms_norm, weight 1 + w", lambda n: of(X, n.rms_norm, 1 + W), None),
    Row("layer_norm", lambda n: of(X, n.layer_norm, W, B), NOT_FUSED),
    Row("layer_norm of a sum, fused", lambda n: of(X + R, n.layer_norm, W, B), FUSED, fuses=True),
]


def builds(call: Callable, norms: object, **options) -> Runs:
    """The host's time to build graphs, which are dropped afterwards."""
    return Runs(lambda count: [call(norms) for _ in range(count)], **options)


def main() -> None:
    script = Script(__doc__, device="default")
    script.begin()
    mx.eval(X, R, W, B)  # except DEEP
    providers = {}
    for row in ROWS:
        row.check()
        providers[row.name, "plain"] = builds(row.call, mlx_norms)
        providers[row.name, "patched"] = builds(row.call, mx.fast, context=row.patched)
    # Last: once their many nodes are freed, malloc has to allocate again.
    stock = [row for row in ROWS if row.name in ("rms_norm", "layer_norm")]
    providers |= {(row.name, "stock"): builds(row.call, mx.fast) for row in stock}
    samples = measure(providers, rounds=ROUNDS, count=CALLS)
    missed = []
    title = "Host time of a call, µs: median (quartiles)"
    found = table(title, ("",), ("mlx_norms", "patched", "extra", "target"))
    for row in ROWS:
        pair = plain, patched = [samples[row.name, side] for side in ("plain", "patched")]
        values = zip(patched.values, plain.values, strict=True)
        extra = Samples(tuple(1e6 * (mine - its) for mine, its in values))
        if row.target is not None and extra.median >= row.target:
            missed.append(row.name)
        target = "" if row.target is None else f"under {row.target}"
        us = (each.spread(".2f", 1e6) for each in pair)
        found.add_row(row.name, *us, extra.spread(".2f"), target)
    found.add_section()
    for row in stock:
        its = samples[row.name, "stock"].spread(".2f", 1e6)
        found.add_row(f"mx.fast.{row.name} itself", its)
    script.console.print(found)
    script.say(f"Above the target: {', '.join(missed)}." if missed else "All within the targets.")


if __name__ == "__main__":
    main()
