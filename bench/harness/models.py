"""Runs a language model of mlx_lm: prefill and decode."""

from __future__ import annotations

import mlx.core as mx
import mlx.nn as nn

import mlx_norms
from mlx_norms._measure.models import new_cache


def prefill(model: nn.Module, prompt: mx.array) -> tuple[mx.array, list]:
    """The token after the prompt, and the prompt's cache."""
    cache = new_cache(model)
    token = mx.argmax(model(prompt[None], cache=cache)[:, -1], axis=-1)
    mx.eval(token)
    return token, cache


def step(model: nn.Module, tokens: mx.array, cache: list) -> mx.array:
    """The token after each of ``tokens``, which one call of the model takes together."""
    return mx.argmax(model(tokens[None], cache=cache)[0], axis=-1)


def trim(cache: list, tokens: int) -> None:
    """Remove the last ``tokens`` from the cache."""
    for layer in cache:
        layer.trim(tokens)


def decode(model: nn.Module, tokens: mx.array, cache: list, count: int) -> None:
    """Make ``count`` steps from ``tokens`` on, then remove their tokens from the cache.

    Each step's tokens are chosen on the device while it is being built, as in mlx_lm. Of several
    tokens, as in speculative decoding, a step takes those chosen after each of the step before.
    """
    for _ in range(count):
        following = step(model, tokens, cache)
        mx.async_eval(following)
        tokens.tolist()
        tokens = following
    tokens.tolist()
    trim(cache, count * tokens.size)


def fused_in_a_step(model: nn.Module, prompt: mx.array) -> mlx_norms.Report:
    """The outcomes of the norms in a decode step, including projections."""
    token, cache = prefill(model, prompt)
    with mlx_norms.patched(projections=True):
        decode(model, token, cache, 1)
        return mlx_norms.report()
