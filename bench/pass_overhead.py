"""Times the pass that patched(projections=True) makes over the pending graph before evaluation.

The graph is that of one decoding step of a llama of 32 layers, whose size decides, not that of its
weights. The pass runs on the host. On the CPU it replaces nothing here;
`python tools hostmetal.build` prints the folder of a build, for PYTHONPATH, in which it replaces
what it would on a GPU. Building the graph in Python is listed for scale, with the pass's share.
Two builds are compared by bench/builds.py --pass.
"""

from __future__ import annotations

from harness.graph_pass import CASES, Pass
from harness.script import Script
from harness.tables import table
from mlx_norms._measure.timing import Runs, measure

STEPS = 8  # a sample
HEADINGS = ("nodes", "norms replaced", "products replaced", "pass, µs", "building, µs", "share, %")


def main() -> int:
    script = Script(__doc__, device="default", rounds=31)
    args = script.begin()
    passes = {name: Pass(*case) for name, case in CASES.items()}
    providers = {(name, "pass"): each for name, each in passes.items()}
    for name, each in passes.items():

        def build(count: int, step=each.step) -> list:
            return [step() for _ in range(count)]

        providers[name, "building"] = Runs(build, context=each.patched)
    samples = measure(providers, rounds=args.rounds, count=STEPS)
    found = table("Host time of a decoding step, median (quartiles)", ("llama",), HEADINGS)
    for name, each in passes.items():
        us = (samples[name, what].spread(".0f", 1e6) for what in ("pass", "building"))
        share = samples[name, "pass"].over(samples[name, "building"])
        found.add_row(name, *map(str, each.found()), *us, f"{100 * share.median:.1f}")
    script.console.print(found)
    return 0
