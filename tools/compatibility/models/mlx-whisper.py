"""A second of sound and a prompt through Whisper."""

import mlx.core as mx
from mlx_whisper.whisper import ModelDimensions, Whisper


def families():
    model = Whisper(ModelDimensions(8, 50, 64, 4, 2, 60, 20, 64, 4, 2), dtype=mx.float32)
    sound = mx.random.normal((1, 100, 8))
    yield "whisper", model, lambda m: m(sound, mx.array([[3, 1, 4, 1]]))
