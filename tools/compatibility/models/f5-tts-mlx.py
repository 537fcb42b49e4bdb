"""Its diffusion transformer and the blocks of its text embedding."""

import mlx.core as mx
from f5_tts_mlx.dit import DiT


def families():
    sound, text = mx.random.normal((2, 9, 20)), mx.array([[3, 1, 4, 1, 5], [9, 2, 6, 5, 3]])
    model = DiT(
        dim=64, depth=2, heads=4, dim_head=16, mel_dim=20, text_num_embeds=50, conv_layers=2
    )
    times = mx.array([0.3, 0.6])
    yield "DiT", model, lambda m: m(sound, 0.5 * sound, text, times, False, False)
