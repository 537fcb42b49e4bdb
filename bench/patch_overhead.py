"""What patching adds to a call on the host: building the graph, evaluating nothing.

A patched call of mx.fast is compared with the same call of mlx_norms' own functions, which it makes
of it; each whose difference is above a microsecond is named. "stock" is mx.fast itself, for scale:
on the CPU it composes a norm, or a rope, of several ops, and builds a node for each. What a pass
over the graph costs is pass_overhead.py's.
"""

from __future__ import annotations

import argparse
import functools
from collections.abc import Callable, Iterator

import mlx.core as mx

import mlx_norms
from harness.results import Line
from harness.suite import Case, Run, Suite, by_case
from mlx_norms._measure.timing import Runs, Samples

CALLS = 2000
EPS = 1e-5
TARGET = 1.0  # microseconds

ROPE = dict(traditional=False, base=10000.0, scale=1.0, offset=3)


def of(x, norm: Callable, *parameters: mx.array) -> tuple:
    """A norm and all arrays made for it, so that nothing is freed while the clock runs."""
    return x, parameters, norm(x, *parameters, EPS)


@functools.cache
def called() -> dict[str, Callable]:
    """Each is called with mlx_norms, if it has that name, and with mx.fast."""
    x, w, b = (mx.random.normal(shape) for shape in ((8, 64), (64,), (64,)))
    heads = mx.random.normal((1, 8, 1, 64))
    mx.eval(x, w, b, heads)
    return {
        "rms_norm": lambda n: of(x, n.rms_norm, w),
        "rms_norm of a pending product": lambda n: of(x * x, n.rms_norm, w),
        "rms_norm of a sum": lambda n: of(x + x, n.rms_norm, w),
        "rms_norm, weight 1 + w": lambda n: of(x, n.rms_norm, 1 + w),
        "layer_norm": lambda n: of(x, n.layer_norm, w, b),
        "layer_norm of a sum": lambda n: of(x + x, n.layer_norm, w, b),
        "rope": lambda n: n.rope(heads, 64, **ROPE),
    }


def builds(call: Callable, norms: object, **options) -> Runs:
    """The host's time to build graphs, which are dropped afterwards."""
    return Runs(lambda count: [call(norms) for _ in range(count)], **options)


def cases(args: argparse.Namespace) -> Iterator[Case]:
    for name, call in called().items():
        sides = {} if name == "rope" else {"plain": builds(call, mlx_norms)}
        sides["patched"] = builds(call, mx.fast, context=mlx_norms.patched)
        # Last: once their many nodes are freed, malloc has to allocate again.
        sides["stock"] = builds(call, mx.fast)
        base = "stock" if name == "rope" else None
        yield Case(dict(call=name), lambda sides=sides: sides, count=CALLS, base=base)


def extra(run: Run, lines: list[Line]) -> None:
    """The calls that cost more than the target."""
    missed = []
    for labels, sides in by_case(lines):
        if "plain" in sides:
            both = (sides[side].time.samples.values for side in ("patched", "plain"))
            more = Samples(tuple(1e6 * (mine - its) for mine, its in zip(*both, strict=True)))
            run.say(f"{labels['call']}: {more.spread('+.2f')} µs, patched")
            missed += [labels["call"]] * (more.median >= TARGET)
    named = f"Above {TARGET} µs: {', '.join(missed)}." if missed else f"All under {TARGET} µs."
    run.say(named)


SUITE = Suite(
    __doc__, ("call",), cases, ("wall",), base="plain", device="default", rounds=101, after=extra
)
