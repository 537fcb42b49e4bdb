"""The logits of a language model of mlx_lm."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable

import mlx.core as mx
import mlx.nn as nn


def new_cache(model: nn.Module) -> list:
    from mlx_lm.models.cache import make_prompt_cache

    return make_prompt_cache(model)


def logits(
    model: nn.Module,
    prompt: mx.array,
    tokens: Iterable[int],
    around: Callable[[], contextlib.AbstractContextManager] = contextlib.nullcontext,
    rows: int = 1,
) -> tuple[mx.array, mx.array]:
    """The logits of the prompt, and of ``tokens`` by ``rows`` a call; each within ``around()``."""
    cache = new_cache(model)
    outputs, tokens = [], list(tokens)
    steps = (mx.array(tokens[i : i + rows]) for i in range(0, len(tokens), rows))
    for part in (prompt, *steps):
        with around():
            outputs.append(model(part[None], cache=cache))
            mx.eval(outputs[-1])
    return outputs[0], mx.concatenate(outputs[1:], axis=1)
