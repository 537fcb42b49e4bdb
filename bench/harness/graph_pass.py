"""The pass of ``patched(projections=True)`` over the pending graph of a llama's decoding step."""

from __future__ import annotations

import contextlib
import copy
import io
import time
from collections.abc import Iterator
from dataclasses import replace

import mlx.core as mx

import mlx_norms
from mlx_norms import _ext

from . import llama

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
        from mlx_lm.models.cache import make_prompt_cache

        self._model, _ = llama.build(SHAPES, bits)
        self._cache = make_prompt_cache(self._model)
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

    def found(self) -> tuple[int, int, int]:
        """The nodes of a step's graph, and the norms and products that the pass replaces in it."""
        with self.patched():
            roots, graph = self.step(), io.StringIO()
            mx.export_to_dot(graph, *roots)
            _ext.fuse_at_eval(roots, True, True)
            report = mlx_norms.report()
        return graph.getvalue().count("shape=rectangle"), report.projections, report.products
