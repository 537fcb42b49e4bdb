"""How a language model of mlx_lm is run: prefill, decode, and the logits of both."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable

import mlx.core as mx
import mlx.nn as nn

import mlx_norms


def new_cache(model: nn.Module) -> list:
    from mlx_lm.models.cache import make_prompt_cache

    return make_prompt_cache(model)


def prefill(model: nn.Module, prompt: mx.array) -> tuple[mx.array, list]:
    """The token after the prompt, and the cache that holds the prompt."""
    cache = new_cache(model)
    token = mx.argmax(model(prompt[None], cache=cache)[:, -1], axis=-1)
    mx.eval(token)
    return token, cache


def decode(model: nn.Module, token: mx.array, cache: list, count: int) -> None:
    """Generate ``count`` tokens after ``token``, and forget them again.

    Each is chosen on the device while the next step is being built, as mlx_lm generates.
    """
    for _ in range(count):
        following = mx.argmax(model(token[None], cache=cache)[:, -1], axis=-1)
        mx.async_eval(following)
        token.item()
        token = following
    token.item()
    for layer in cache:
        layer.trim(count)


def logits(
    model: nn.Module,
    prompt: mx.array,
    tokens: Iterable[int],
    around: Callable[[], contextlib.AbstractContextManager] = contextlib.nullcontext,
) -> tuple[mx.array, mx.array]:
    """Those of the prompt and of ``tokens``, a call each within ``around()``."""
    cache = new_cache(model)
    outputs = []
    for part in (prompt, *(mx.array([token]) for token in tokens)):
        with around():
            outputs.append(model(part[None], cache=cache))
            mx.eval(outputs[-1])
    return outputs[0], mx.concatenate(outputs[1:], axis=1)


def fused_in_a_step(model: nn.Module, prompt: mx.array) -> mlx_norms.Report:
    """What becomes of the norms of a decode step, projections among them."""
    token, cache = prefill(model, prompt)
    with mlx_norms.patched(projections=True):
        decode(model, token, cache, 1)
        return mlx_norms.report()
