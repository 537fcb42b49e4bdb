"""A BERT encoder with only what inference needs."""

from __future__ import annotations

from dataclasses import dataclass

import mlx.core as mx
import mlx.nn as nn


@dataclass(frozen=True)
class BertConfig:
    """The part of a Hugging Face ``config.json`` that this encoder depends on."""

    vocab_size: int
    hidden_size: int
    num_hidden_layers: int
    num_attention_heads: int
    intermediate_size: int
    max_position_embeddings: int
    type_vocab_size: int
    layer_norm_eps: float


class Bert(nn.Module):
    """Token ids (batch, tokens) and their mask to hidden states (batch, tokens, hidden_size).

    All tokens are of type 0: single sentences, no pairs. The norms follow the residual adds, two
    per layer, and the embeddings.
    """

    def __init__(self, config: BertConfig):
        super().__init__()
        self.embeddings = Embeddings(config)
        self.layers = [Layer(config) for _ in range(config.num_hidden_layers)]

    def __call__(self, tokens: mx.array, mask: mx.array) -> mx.array:
        """``mask`` is 1 for tokens and 0 for padding; it has the shape of ``tokens``."""
        attended = mask[:, None, None, :].astype(mx.bool_)
        hidden = self.embeddings(tokens)
        for layer in self.layers:
            hidden = layer(hidden, attended)
        return hidden

    def load_hugging_face_weights(self, path: str) -> None:
        """Load a ``model.safetensors`` of Hugging Face's ``BertModel``; its pooler is not used."""
        weights = mx.load(path)
        unused = ("pooler.", "embeddings.position_ids")
        self.load_weights(
            [(_our_name(k), v) for k, v in weights.items() if not k.startswith(unused)]
        )


class Embeddings(nn.Module):
    """The sum of token, position and type embeddings, normalized."""

    def __init__(self, config: BertConfig):
        super().__init__()
        self.token = nn.Embedding(config.vocab_size, config.hidden_size)
        self.position = nn.Embedding(config.max_position_embeddings, config.hidden_size)
        self.type = nn.Embedding(config.type_vocab_size, config.hidden_size)
        self.norm = nn.LayerNorm(config.hidden_size, eps=config.layer_norm_eps)

    def __call__(self, tokens: mx.array) -> mx.array:
        positions = self.position.weight[: tokens.shape[1]]
        return self.norm(self.token(tokens) + positions + self.type.weight[0])


class Layer(nn.Module):
    """Self-attention and a feed-forward network."""

    def __init__(self, config: BertConfig):
        super().__init__()
        width, eps = config.hidden_size, config.layer_norm_eps
        self.attention = Attention(width, config.num_attention_heads)
        self.attention_norm = nn.LayerNorm(width, eps=eps)
        self.up = nn.Linear(width, config.intermediate_size)
        self.down = nn.Linear(config.intermediate_size, width)
        self.feed_forward_norm = nn.LayerNorm(width, eps=eps)

    def __call__(self, hidden: mx.array, attended: mx.array) -> mx.array:
        hidden = self.attention_norm(hidden + self.attention(hidden, attended))
        return self.feed_forward_norm(hidden + self.down(nn.gelu(self.up(hidden))))


class Attention(nn.Module):
    """Multi-head self-attention over the tokens that the mask ``attended`` selects."""

    def __init__(self, width: int, heads: int):
        super().__init__()
        self.heads = heads
        self.query = nn.Linear(width, width)
        self.key = nn.Linear(width, width)
        self.value = nn.Linear(width, width)
        self.out = nn.Linear(width, width)

    def __call__(self, hidden: mx.array, attended: mx.array) -> mx.array:
        query, key, value = (
            mx.unflatten(project(hidden), -1, (self.heads, -1)).transpose(0, 2, 1, 3)
            for project in (self.query, self.key, self.value)
        )
        mixed = mx.fast.scaled_dot_product_attention(
            query, key, value, scale=query.shape[-1] ** -0.5, mask=attended
        )
        return self.out(mx.flatten(mixed.transpose(0, 2, 1, 3), -2, -1))


_RENAMED = (
    ("encoder.layer.", "layers."),
    ("attention.output.LayerNorm", "attention_norm"),
    ("attention.output.dense", "attention.out"),
    ("attention.self.", "attention."),
    ("intermediate.dense", "up"),
    ("output.dense", "down"),
    ("output.LayerNorm", "feed_forward_norm"),
    ("embeddings.LayerNorm", "embeddings.norm"),
    ("embeddings.word_embeddings", "embeddings.token"),
    ("embeddings.position_embeddings", "embeddings.position"),
    ("embeddings.token_type_embeddings", "embeddings.type"),
)


def _our_name(name: str) -> str:
    """The name in :class:`Bert` of the parameter that Hugging Face calls ``name``."""
    for theirs, ours in _RENAMED:
        name = name.replace(theirs, ours)
    return name
