"""The pass that patched(projections=True) makes over the pending graph before evaluation.

The graph is that of one decoding step of a llama of 32 layers, whose size decides, not that of its
weights. The pass runs on the host. On the CPU it replaces nothing here;
`python tools hostmetal.build` prints the folder of a build, for PYTHONPATH, in which it replaces
what it would on a GPU. The ratio is over building the graph in Python, for scale. Two builds are
compared by builds.py.
"""

from __future__ import annotations

import argparse
import contextlib
import copy
import functools
import io
import time
from collections.abc import Iterator
from dataclasses import replace

import mlx.core as mx

import mlx_norms
from harness import llama, models
from harness.suite import Case, Suite
from mlx_norms import _ext
from mlx_norms._measure import timing

STEPS = 8  # a sample
SHAPES = replace(llama.TINY, num_hidden_layers=32)
PROMPT = 16
# The bits of the weights, whether products not known to be faster are taken, and the tokens
# of a step: no kernel takes 64.
CASES = {
    "bf16": (None, False, 1),
    "4-bit": (4, False, 1),
    "4-bit, products": (4, True, 1),
    "bf16, nothing to do": (None, False, 64),
    "4-bit, nothing to do": (4, False, 64),
}


class Pass:
    """Times the pass alone; see :class:`timing.Timed`. Nothing is evaluated after the prompt.

    The clock is the thread's: the pass waits for nothing, and other processes do not count.
    """

    most, overlap = 16, False

    def __init__(self, bits: int | None, products: bool, tokens: int) -> None:
        self._model, _ = llama.build(SHAPES, bits)
        self._cache = models.new_cache(self._model)
        prompt = mx.arange(PROMPT)[None]
        mx.eval(self._model(prompt, cache=self._cache), [c.state for c in self._cache])
        self._products = products
        self._tokens = tokens

    @contextlib.contextmanager
    def patched(self) -> Iterator[None]:
        _ext.set_products_anywhere(self._products)
        with mlx_norms.patched(projections=True):
            yield
        _ext.set_products_anywhere(False)

    def step(self) -> list[mx.array]:
        """What mlx_lm evaluates for the next token, pending."""
        cache = copy.deepcopy(self._cache)  # the arrays are shared
        logits = self._model(mx.zeros((1, self._tokens), mx.int32), cache=cache)[:, -1, :]
        logprobs = logits - mx.logsumexp(logits, keepdims=True)
        return [mx.argmax(logprobs, axis=-1), logprobs]

    def seconds(self, count: int) -> float:
        seconds = 0.0
        with self.patched():
            for _ in range(count):
                roots = self.step()
                start = time.thread_time()
                _ext.fuse_at_eval(roots, True, True)
                seconds += time.thread_time() - start
        return seconds

    def extras(self, side: str) -> dict[str, int]:
        """The nodes of a step's graph, and the norms and products that the pass replaces in it."""
        with self.patched():
            roots, graph = self.step(), io.StringIO()
            mx.export_to_dot(graph, *roots)
            _ext.fuse_at_eval(roots, True, True)
            report = mlx_norms.report()
        nodes = graph.getvalue().count("shape=rectangle")
        return dict(nodes=nodes, norms=report.projections, products=report.products)


def cases(args: argparse.Namespace) -> Iterator[Case]:
    for name, case in CASES.items():
        made = functools.cache(lambda case=case: Pass(*case))

        def sides(made=made) -> dict[str, timing.Timed]:
            build = lambda count: [made().step() for _ in range(count)]  # noqa: E731
            return {"building": timing.Runs(build, made().patched), "ours": made()}

        extras = lambda side, made=made: made().extras(side)  # noqa: E731
        yield Case(dict(llama=name), sides, count=STEPS, extras=extras)


SUITE = Suite(
    __doc__,
    ("llama",),
    cases,
    ("wall",),
    base="building",
    device="default",
    extras=("nodes", "norms", "products"),
)
