"""mlx_lm's llama and qwen3 with random weights."""

from __future__ import annotations

import importlib
import importlib.metadata
from dataclasses import asdict, dataclass, replace

import mlx.core as mx
import mlx.nn as nn
from mlx.utils import tree_map_with_path

FORMATS = {"bf16": None, "4-bit": 4, "8-bit": 8}
_DEVIATION = 0.02


@dataclass(frozen=True)
class Shapes:
    """Sizes of a model, by default those of the llama of 8B."""

    num_hidden_layers: int = 32
    hidden_size: int = 4096
    intermediate_size: int = 14336
    num_attention_heads: int = 32
    num_key_value_heads: int = 8
    vocab_size: int = 128256
    rms_norm_eps: float = 1e-5
    rope_theta: float = 500000.0
    head_dim: int = 128
    max_position_embeddings: int = 8192
    tie_word_embeddings: bool = False
    model_type: str = "llama"


TINY = Shapes(2, 128, 256, 4, 2, 512, head_dim=32)
_SMALL = Shapes(28, 1024, 3072, 16, 8, 151936, tie_word_embeddings=True)
MODELS = {
    "llama-8B": Shapes(),
    "llama-0.6B": _SMALL,
    "qwen3-0.6B": replace(_SMALL, model_type="qwen3"),
    "qwen3-8B": Shapes(36, 4096, 12288, 32, 8, 151936, 1e-6, 1e6, model_type="qwen3"),
}


def shapes_of(name: str, *, tiny: bool) -> Shapes:
    """Those of one of the models, or tiny ones with its architecture."""
    shapes = MODELS[name]
    return replace(TINY, model_type=shapes.model_type) if tiny else shapes


def build(shapes: Shapes, bits: int | None) -> tuple[nn.Module, str]:
    """A model with bfloat16 weights, or weights of ``bits`` bits, and where its code is from."""
    module = importlib.import_module(f"mlx_lm.models.{shapes.model_type}")
    model = module.Model(module.ModelArgs(**asdict(shapes)))
    model.update(tree_map_with_path(_random_weight, model.parameters()))
    if bits:
        nn.quantize(model, group_size=64, bits=bits)
    mx.eval(model.parameters())
    return model, f"mlx_lm {importlib.metadata.version('mlx_lm')}"


def _random_weight(path: str, like: mx.array) -> mx.array:
    weight = _DEVIATION * mx.random.normal(like.shape, mx.bfloat16)
    return 1 + weight if "norm" in path else weight
