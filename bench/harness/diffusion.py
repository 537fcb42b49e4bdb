"""A block of a diffusion transformer, mflux's Qwen-Image, as mflux has it and with our norms."""

from __future__ import annotations

import importlib.metadata
from dataclasses import dataclass

import mlx.core as mx
import mlx.nn as nn

import mlx_norms

from .bare_packages import bare_packages
from .random_weights import randomize

_EPS = 1e-6


@dataclass(frozen=True)
class Sizes:
    """Sizes of a block and of what it is called with, by default the model's, of one image."""

    heads: int = 24
    head_length: int = 128
    batch: int = 1
    image_tokens: int = 4096
    text_tokens: int = 256

    @property
    def length(self) -> int:
        return self.heads * self.head_length


TINY = Sizes(4, 16, 2, 24, 7)


def build(sizes: Sizes, dtype: mx.Dtype) -> tuple[nn.Module, str]:
    """mflux's block with random weights, and where its code is from."""
    package = "mflux.models.qwen.model.qwen_transformer"
    with bare_packages(package):
        module = importlib.import_module(f"{package}.qwen_transformer_block")
    block = module.QwenTransformerBlock(sizes.length, sizes.heads, sizes.head_length)

    randomize(block, dtype)
    return block, f"mflux {importlib.metadata.version('mflux')}"


def inputs(sizes: Sizes, dtype: mx.Dtype) -> list[mx.array]:
    """Tokens of the image and of the text, the step's embedding, and angles of both tokens."""
    tokens = (sizes.image_tokens, sizes.text_tokens)
    found = [mx.random.normal((sizes.batch, count, sizes.length)) for count in tokens]
    found.append(mx.random.normal((sizes.batch, sizes.length)))
    found = [array.astype(dtype) for array in found]
    found += [mx.random.uniform(0, 6.28, (count, sizes.head_length // 2)) for count in tokens]
    mx.eval(found)
    return found


def _rotations(image_angles: mx.array, text_angles: mx.array) -> tuple:
    return tuple((mx.cos(angles), mx.sin(angles)) for angles in (image_angles, text_angles))


def stock(block: nn.Module, image, text, embedding, *angles) -> tuple[mx.array, mx.array]:
    """The new text and image tokens, by mflux's own code."""
    return block(image, text, None, embedding, _rotations(*angles))


def ours(block: nn.Module, image, text, embedding, *angles) -> tuple[mx.array, mx.array]:
    """The same, written with our norms: four launches for what MLX computes in about forty."""
    embedding = nn.silu(embedding)
    of_image = _modulation(block.img_mod_linear, embedding)
    of_text = _modulation(block.txt_mod_linear, embedding)
    images, texts = of_image[0], of_text[0]
    attended = block.attn(
        mlx_norms.layer_norm(image, eps=_EPS, scale=images[1], shift=images[0]),
        mlx_norms.layer_norm(text, eps=_EPS, scale=texts[1], shift=texts[0]),
        None,
        _rotations(*angles),
    )
    image = _feed(block.img_ff, attended[0], image, *of_image)
    text = _feed(block.txt_ff, attended[1], text, *of_text)
    return text, image


def _modulation(linear: nn.Module, embedding: mx.array) -> list[list[mx.array]]:
    """Shift, scale and gate of attention and of the feed-forward network."""
    parts = mx.split(linear(embedding)[:, None], 6, axis=-1)
    return [parts[:3], parts[3:]]


def _feed(network, attended, tokens, of_attention, of_network) -> mx.array:
    shift, scale, gate = of_network
    y, tokens = mlx_norms.add_layer_norm(
        attended, tokens, eps=_EPS, factor=of_attention[2], scale=scale, shift=shift
    )
    return tokens + gate * network(y)
