"""Times what patching adds to a call on the host: building the graph, evaluating nothing.

A patched call of mx.fast is compared with the same call of mlx_norms' own functions, which it makes
of it. "extra" is the difference in microseconds, round by round; each above the target is named.
mx.fast itself is listed last, for scale: on the CPU it composes a norm, or a rope, of several ops,
and builds a node for each. What a pass over the graph costs is pass_overhead.py's.
"""

from __future__ import annotations

from collections.abc import Callable

import mlx.core as mx

import mlx_norms
from harness.script import Script
from harness.tables import table
from mlx_norms._measure.timing import Runs, Samples, measure

CALLS = 2000
ROUNDS = 101
EPS = 1e-5
TARGET = 1.0  # microseconds

X, W, B = (mx.random.normal(shape) for shape in ((8, 64), (64,), (64,)))
HEADS = mx.random.normal((1, 8, 1, 64))
ROPE = dict(traditional=False, base=10000.0, scale=1.0, offset=3)


def of(x, norm: Callable, *parameters: mx.array) -> tuple:
    """A norm and all arrays made for it, so that nothing is freed while the clock runs."""
    return x, parameters, norm(x, *parameters, EPS)


# Each is called with mlx_norms, if it has that name, and with mx.fast while patched.
CALLED = {
    "rms_norm": lambda n: of(X, n.rms_norm, W),
    "rms_norm of a pending product": lambda n: of(X * X, n.rms_norm, W),
    "rms_norm of a sum": lambda n: of(X + X, n.rms_norm, W),
    "rms_norm, weight 1 + w": lambda n: of(X, n.rms_norm, 1 + W),
    "layer_norm": lambda n: of(X, n.layer_norm, W, B),
    "layer_norm of a sum": lambda n: of(X + X, n.layer_norm, W, B),
    "rope": lambda n: n.rope(HEADS, 64, **ROPE),
}
ALONE = ("rms_norm", "layer_norm", "rope")


def builds(call: Callable, norms: object, **options) -> Runs:
    """The host's time to build graphs, which are dropped afterwards."""
    return Runs(lambda count: [call(norms) for _ in range(count)], **options)


def main() -> None:
    script = Script(__doc__, device="default")
    script.begin()
    mx.eval(X, W, B, HEADS)
    providers = {}
    for name, call in CALLED.items():
        if name != "rope":
            providers[name, "plain"] = builds(call, mlx_norms)
        providers[name, "patched"] = builds(call, mx.fast, context=mlx_norms.patched)
    # Last: once their many nodes are freed, malloc has to allocate again.
    providers |= {(name, "stock"): builds(CALLED[name], mx.fast) for name in ALONE}
    samples = measure(providers, rounds=ROUNDS, count=CALLS)
    missed = []
    title = "Host time of a call, µs: median (quartiles)"
    found = table(title, ("",), ("mlx_norms", "patched", "extra", "target"))
    for name in CALLED:
        patched = samples[name, "patched"]
        cells = ["", patched.spread(".2f", 1e6), "", ""]
        if plain := samples.get((name, "plain")):
            values = zip(patched.values, plain.values, strict=True)
            extra = Samples(tuple(1e6 * (mine - its) for mine, its in values))
            if extra.median >= TARGET:
                missed.append(name)
            cells[0], cells[2:] = plain.spread(".2f", 1e6), (extra.spread(".2f"), f"under {TARGET}")
        found.add_row(name, *cells)
    found.add_section()
    for name in ALONE:
        found.add_row(f"mx.fast.{name} itself", samples[name, "stock"].spread(".2f", 1e6))
    script.console.print(found)
    script.say(f"Above the target: {', '.join(missed)}." if missed else "All within the targets.")
