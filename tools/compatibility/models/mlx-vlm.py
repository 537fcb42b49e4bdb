"""Two tiles of an image and a prompt through Qwen2-VL."""

import mlx.core as mx
from mlx_vlm.models.qwen2_vl import ModelConfig, TextConfig, VisionConfig
from mlx_vlm.models.qwen2_vl.qwen2_vl import Model


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
