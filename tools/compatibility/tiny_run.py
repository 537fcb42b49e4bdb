"""Runs a tiny model of a package with MLX's norms and patched, in the package's environment.

    python tiny_run.py PACKAGE

Prints JSON: the largest difference, as a share of the largest value, and the patch's counts.
The weights are random, float32; nothing is downloaded.
"""

import json
import sys
from collections.abc import Callable

import mlx.core as mx
from mlx.utils import tree_map

import mlx_norms


def of_mlx_lm():
    """A prompt through a Llama and a Gemma."""
    from mlx_lm.models import gemma2, llama

    sizes = dict(hidden_size=64, num_hidden_layers=2, intermediate_size=96, vocab_size=50)
    sizes |= dict(num_attention_heads=4, num_key_value_heads=2, rms_norm_eps=1e-5)
    models = [
        module.Model(module.ModelArgs.from_dict(dict(model_type="tiny", head_dim=16) | sizes))
        for module in (llama, gemma2)
    ]
    return models, lambda: [model(mx.array([[3, 1, 4, 1, 5]])) for model in models]


def of_mlx_vlm():
    """Two tiles of an image and a prompt through Qwen2-VL."""
    from mlx_vlm.models.qwen2_vl import ModelConfig, TextConfig, VisionConfig
    from mlx_vlm.models.qwen2_vl.qwen2_vl import Model

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
    model = Model(ModelConfig(text, vision, "qwen2_vl", **ids))
    pixels = mx.random.normal((16, 3 * 2 * 4 * 4))
    grid = mx.array([[1, 4, 4]])
    prompt = mx.array([[7, 42, 40, 40, 40, 40, 9, 3]])
    return [model], lambda: [model(prompt, pixels, image_grid_thw=grid).logits]


def of_mlx_audio():
    """A second of sound and a prompt through Whisper."""
    from mlx_audio.stt.models.whisper.whisper import Model, ModelDimensions

    model = Model(ModelDimensions(8, 50, 64, 4, 2, 60, 20, 64, 4, 2), dtype=mx.float32)
    sound = mx.random.normal((1, 100, 8))
    return [model], lambda: [model(sound, mx.array([[3, 1, 4, 1]]))]


def of_mflux():
    """A block of Qwen-Image's transformer."""
    from mlx_norms._bench import diffusion

    block, _ = diffusion.build(diffusion.TINY, mx.float32)
    inputs = diffusion.inputs(diffusion.TINY, mx.float32)
    return [block], lambda: list(diffusion.stock(block, *inputs))


MODELS: dict[str, Callable] = {
    "mlx-lm": of_mlx_lm,
    "mlx-vlm": of_mlx_vlm,
    "mlx-audio": of_mlx_audio,
    "mflux": of_mflux,
}


def without_constants(parameter: mx.array) -> mx.array:
    """Norms' weights that are all 1 would hide that one is left out."""
    return parameter + 0.1 * mx.random.normal(parameter.shape)


def main() -> None:
    mx.random.seed(0)
    models, run = MODELS[sys.argv[1]]()
    for model in models:
        model.update(tree_map(without_constants, model.parameters()))
        model.eval()
    expected = run()
    mx.eval(expected)
    mlx_norms.patch()
    got = run()
    mx.eval(got)
    report = mlx_norms.report()
    differences = [
        (mx.abs(a - b).max() / mx.abs(a).max()).item() for a, b in zip(expected, got, strict=True)
    ]
    counts = {name: getattr(report, name) for name in ("calls", "fused", "passed_on")}
    print(json.dumps({"difference": max(differences)} | counts))


if __name__ == "__main__":
    main()
