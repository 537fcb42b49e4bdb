"""Runs a language model of mlx_lm: prefill, decode, and the logits of both."""

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
    """The token after the prompt, and the prompt's cache."""
    cache = new_cache(model)
    token = mx.argmax(model(prompt[None], cache=cache)[:, -1], axis=-1)
    mx.eval(token)
    return token, cache


def decode(model: nn.Module, token: mx.array, cache: list, count: int) -> None:
    """Generate ``count`` tokens after ``token``, then remove them from the cache.

    Each token is chosen on the device while the next step is being built, as in mlx_lm.
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
    """The logits of the prompt and of ``tokens``, one call each within ``around()``."""
    cache = new_cache(model)
    outputs = []
    for part in (prompt, *(mx.array([token]) for token in tokens)):
        with around():
            outputs.append(model(part[None], cache=cache))
            mx.eval(outputs[-1])
    return outputs[0], mx.concatenate(outputs[1:], axis=1)


def fused_in_a_step(model: nn.Module, prompt: mx.array) -> mlx_norms.Report:
    """The outcomes of the norms in a decode step, including projections."""
    token, cache = prefill(model, prompt)
    with mlx_norms.patched(projections=True):
        decode(model, token, cache, 1)
        return mlx_norms.report()
