"""Two tiles of an image and a prompt through Qwen2-VL; prefill, decoding and a padded batch of
language models with norms of queries and keys: before a transpose, after it, and of all heads.
"""

import mlx.core as mx
from mlx_vlm.models import gemma3, olmo3, qwen3
from mlx_vlm.models.cache import BatchKVCache, KVCache
from mlx_vlm.models.gemma3.language import LanguageModel
from mlx_vlm.models.qwen2_vl import ModelConfig, TextConfig, VisionConfig
from mlx_vlm.models.qwen2_vl.qwen2_vl import Model

DECODED = 2
SIZES = dict(
    hidden_size=64,
    num_hidden_layers=2,
    intermediate_size=96,
    num_attention_heads=4,
    num_key_value_heads=2,
    head_dim=16,
    rms_norm_eps=1e-6,
    vocab_size=50,
    max_position_embeddings=128,
)


def generated(model, tokens, caches):
    """The logits after a prompt and after each of the tokens that follow it."""
    prompt = tokens.shape[1] - DECODED
    parts = [tokens[:, :prompt], *mx.split(tokens[:, prompt:], DECODED, axis=1)]
    return [model(part, cache=caches).logits[:, -1] for part in parts]


def generation(model):
    tokens = mx.array([[7, 42, 40, 9, 3, 11, 5], [0, 0, 0, 8, 4, 2, 6]])
    layers = len(model.layers)
    alone = generated(model, tokens[:1], [KVCache() for _ in range(layers)])
    padded = generated(model, tokens, [BatchKVCache([0, 3]) for _ in range(layers)])
    return [*alone, *padded]


def families():
    vision = VisionConfig(depth=2, embed_dim=32, hidden_size=64, num_heads=2, patch_size=4)
    text = TextConfig(
        model_type="qwen2_vl",
        hidden_size=64,
        num_hidden_layers=2,
        intermediate_size=96,
        num_attention_heads=4,
        rms_norm_eps=1e-6,
        vocab_size=50,
        num_key_value_heads=2,
        rope_scaling={"type": "mrope", "mrope_section": [2, 3, 3]},
    )
    ids = dict(image_token_id=40, video_token_id=41, vision_start_token_id=42, vocab_size=50)
    pixels, grid = mx.random.normal((16, 3 * 2 * 4 * 4)), mx.array([[1, 4, 4]])
    prompt = mx.array([[7, 42, 40, 40, 40, 40, 9, 3]])
    model = Model(ModelConfig(text, vision, "qwen2_vl", **ids))
    yield "qwen2_vl", model, lambda m: m(prompt, pixels, image_grid_thw=grid).logits
    qwen = qwen3.ModelConfig("qwen3", rope_theta=1e4, tie_word_embeddings=True, **SIZES)
    yield "qwen3", qwen3.Model(qwen), generation
    gemma = gemma3.TextConfig("gemma3_text", sliding_window_pattern=2, **SIZES)
    yield "gemma3", LanguageModel(gemma), generation
    kinds = dict(layer_types=["sliding_attention", "full_attention"], sliding_window=64)
    olmo = olmo3.ModelConfig("olmo3", rope_theta=1e4, **kinds, **SIZES)
    yield "olmo3", olmo3.Model(olmo), generation
