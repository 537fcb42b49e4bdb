"""What is timed of a model's generation: its prefill, and its decode steps."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field

import mlx.core as mx
import mlx.nn as nn

from mlx_norms._measure.models import logits as logits_of
from mlx_norms.commands._sides import CONTEXTS

from . import models
from .step_costs import HostTime


@dataclass(frozen=True)
class Phase:
    """A prefill, or a decode step of some rows: how to make some, and the logits of a few.

    Attributes:
        rows: The tokens that the model takes together.
        count: Prefills or steps in a sample.
        host: Of a step, what times it on the host, by side.
    """

    name: str
    rows: int
    count: int
    run: Callable[[int], None]
    logits: Callable[[], mx.array]
    host: dict[str, HostTime] = field(default_factory=dict)


def of(
    model: nn.Module, prompt: mx.array, rows: Iterable[int], *, prefills: int, steps: int
) -> Iterator[Phase]:
    """A prefill of the prompt, and after it steps of each of these numbers of rows."""
    token, cache = models.prefill(model, prompt)

    def prefill(count: int) -> None:
        for _ in range(count):
            models.prefill(model, prompt)

    def prefill_logits() -> mx.array:
        return model(prompt[None], cache=models.new_cache(model))

    yield Phase("prefill", prompt.size, prefills, prefill, prefill_logits)
    for n in rows:
        tokens = mx.repeat(token, n)
        given = mx.random.randint(0, model.args.vocab_size, (steps * n,)).tolist()
        mx.eval(tokens)

        def decode(count: int, tokens: mx.array = tokens) -> None:
            models.decode(model, tokens, cache, count)

        def logits(given: list[int] = given, n: int = n) -> mx.array:
            return logits_of(model, prompt, given, rows=n)[1]

        host = {side: HostTime(model, tokens, cache, of) for side, of in CONTEXTS.items()}
        name = "decode" if n == 1 else f"decode, {n} rows"
        yield Phase(name, n, steps, decode, logits, host)
