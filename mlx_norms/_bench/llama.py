"""A llama with random weights: mlx_lm's where that is there, else one in mlx.nn as it has it."""

from __future__ import annotations

import functools
import importlib.metadata
from dataclasses import asdict, dataclass

import mlx.core as mx
import mlx.nn as nn
from mlx.utils import tree_map_with_path

CACHE_STEP = 256
DEVIATION = 0.02


@dataclass(frozen=True)
class Shapes:
    """Sizes of a llama, by default those of the one with 8 billion weights."""

    num_hidden_layers: int = 32
    hidden_size: int = 4096
    intermediate_size: int = 14336
    num_attention_heads: int = 32
    num_key_value_heads: int = 8
    vocab_size: int = 128256
    rms_norm_eps: float = 1e-5
    rope_theta: float = 500000.0


def build(shapes: Shapes, bits: int | None) -> tuple[nn.Module, str]:
    """A model with bfloat16 weights, or quantised ones of ``bits``, and whose code it is."""
    try:
        from mlx_lm.models import llama
    except ImportError:
        model, source = Llama(shapes), "mlx_norms/_bench/llama.py"
    else:
        args = llama.ModelArgs(model_type="llama", tie_word_embeddings=False, **asdict(shapes))
        model, source = llama.Model(args), f"mlx_lm {importlib.metadata.version('mlx_lm')}"
    model.update(tree_map_with_path(_random_weight, model.parameters()))
    if bits:
        nn.quantize(model, group_size=64, bits=bits)
    mx.eval(model.parameters())
    return model, source


def _random_weight(path: str, like: mx.array) -> mx.array:
    weight = DEVIATION * mx.random.normal(like.shape, mx.bfloat16)
    return 1 + weight if "norm" in path else weight


def new_cache(model: nn.Module) -> list:
    if isinstance(model, Llama):
        return [KeyValueCache() for _ in model.layers]
    from mlx_lm.models.cache import make_prompt_cache

    return make_prompt_cache(model)


class KeyValueCache:
    """Keys and values of the tokens so far, with room for more."""

    def __init__(self) -> None:
        self.length = 0
        self._arrays: list[mx.array] = []

    def extend(self, *new: mx.array) -> list[mx.array]:
        """All keys and values, with the new ones after those of before."""
        end = self.length + new[0].shape[2]
        if not self._arrays or end > self._arrays[0].shape[2]:
            self._grow(new, -(-end // CACHE_STEP) * CACHE_STEP)
        for kept, array in zip(self._arrays, new, strict=True):
            kept[:, :, self.length : end] = array
        self.length = end
        return [kept[:, :, :end] for kept in self._arrays]

    def trim(self, count: int) -> None:
        """Forget the last tokens."""
        self.length -= count

    def _grow(self, like: tuple[mx.array, ...], capacity: int) -> None:
        batch, heads, _, width = like[0].shape
        shape = (batch, heads, capacity - self.length, width)
        room = [mx.zeros(shape, array.dtype) for array in like]
        kept = [array[:, :, : self.length] for array in self._arrays]
        grown = [mx.concatenate(pair, axis=2) for pair in zip(kept, room)]
        self._arrays = grown or room


@functools.partial(mx.compile, shapeless=True)
def _gated(gate: mx.array, up: mx.array) -> mx.array:
    return nn.silu(gate) * up


class Attention(nn.Module):
    def __init__(self, shapes: Shapes) -> None:
        super().__init__()
        self.heads, self.kv_heads = shapes.num_attention_heads, shapes.num_key_value_heads
        self.width = shapes.hidden_size // self.heads
        self.q_proj = nn.Linear(shapes.hidden_size, self.heads * self.width, bias=False)
        self.k_proj = nn.Linear(shapes.hidden_size, self.kv_heads * self.width, bias=False)
        self.v_proj = nn.Linear(shapes.hidden_size, self.kv_heads * self.width, bias=False)
        self.o_proj = nn.Linear(self.heads * self.width, shapes.hidden_size, bias=False)
        self.rope = nn.RoPE(self.width, base=shapes.rope_theta)

    def __call__(self, x: mx.array, cache: KeyValueCache) -> mx.array:
        batch, tokens, _ = x.shape

        def by_head(projected: mx.array, heads: int) -> mx.array:
            return projected.reshape(batch, tokens, heads, self.width).transpose(0, 2, 1, 3)

        queries = self.rope(by_head(self.q_proj(x), self.heads), offset=cache.length)
        keys = self.rope(by_head(self.k_proj(x), self.kv_heads), offset=cache.length)
        keys, values = cache.extend(keys, by_head(self.v_proj(x), self.kv_heads))
        mixed = mx.fast.scaled_dot_product_attention(
            queries, keys, values, scale=self.width**-0.5, mask="causal" if tokens > 1 else None
        )
        return self.o_proj(mixed.transpose(0, 2, 1, 3).reshape(batch, tokens, -1))


class FeedForward(nn.Module):
    def __init__(self, shapes: Shapes) -> None:
        super().__init__()
        self.gate_proj = nn.Linear(shapes.hidden_size, shapes.intermediate_size, bias=False)
        self.up_proj = nn.Linear(shapes.hidden_size, shapes.intermediate_size, bias=False)
        self.down_proj = nn.Linear(shapes.intermediate_size, shapes.hidden_size, bias=False)

    def __call__(self, x: mx.array) -> mx.array:
        return self.down_proj(_gated(self.gate_proj(x), self.up_proj(x)))


class Block(nn.Module):
    def __init__(self, shapes: Shapes) -> None:
        super().__init__()
        self.attention = Attention(shapes)
        self.feed_forward = FeedForward(shapes)
        self.attention_norm = nn.RMSNorm(shapes.hidden_size, eps=shapes.rms_norm_eps)
        self.feed_forward_norm = nn.RMSNorm(shapes.hidden_size, eps=shapes.rms_norm_eps)

    def __call__(self, x: mx.array, cache: KeyValueCache) -> mx.array:
        h = x + self.attention(self.attention_norm(x), cache)
        return h + self.feed_forward(self.feed_forward_norm(h))


class Llama(nn.Module):
    def __init__(self, shapes: Shapes) -> None:
        super().__init__()
        self.embedding = nn.Embedding(shapes.vocab_size, shapes.hidden_size)
        self.layers = [Block(shapes) for _ in range(shapes.num_hidden_layers)]
        self.norm = nn.RMSNorm(shapes.hidden_size, eps=shapes.rms_norm_eps)
        self.head = nn.Linear(shapes.hidden_size, shapes.vocab_size, bias=False)

    def __call__(self, tokens: mx.array, cache: list[KeyValueCache]) -> mx.array:
        h = self.embedding(tokens)
        for layer, kept in zip(self.layers, cache, strict=True):
            h = layer(h, kept)
        return self.head(self.norm(h))
