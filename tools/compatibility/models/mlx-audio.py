"""Recognizers, voices and codecs: those that write norms of their own, and Whisper."""

import mlx.core as mx
from mlx_audio.sts.models.sam_audio.config import TransformerConfig
from mlx_audio.sts.models.sam_audio.transformer import DiT
from mlx_audio.stt.models.whisper.whisper import Model, ModelDimensions
from mlx_audio.tts.models.echo_tts.model import SpeakerEncoder, TextEncoder
from mlx_audio.tts.models.melotts.attentions import Encoder
from mlx_audio.tts.models.vibevoice.acoustic_tokenizer import AcousticTokenizer
from mlx_audio.tts.models.vibevoice.config import AcousticTokenizerConfig, DiffusionHeadConfig
from mlx_audio.tts.models.vibevoice.diffusion_head import DiffusionHead

normal = mx.random.normal
PROMPT = mx.array([[3, 1, 4, 1, 5]])


def families():
    model = Model(ModelDimensions(8, 50, 64, 4, 2, 60, 20, 64, 4, 2), dtype=mx.float32)
    sound = normal((1, 100, 8))
    yield "whisper", model, lambda m: m(sound, PROMPT)

    noise, condition = normal((3, 16)), normal((3, 64))
    model = DiffusionHead(DiffusionHeadConfig(hidden_size=64, head_layers=2, latent_size=16))
    yield "vibevoice diffusion", model, lambda m: m(noise, mx.array([1.0, 5.0, 9.0]), condition)

    config = AcousticTokenizerConfig(
        vae_dim=16,
        encoder_n_filters=8,
        encoder_ratios=[2, 2],
        encoder_depths="1-1-1",
        decoder_n_filters=8,
        layer_scale_init_value=0.1,
    )
    latents = normal((1, 7, 16))
    yield "vibevoice decoder", AcousticTokenizer(config), lambda m: m(latents)

    sizes = dict(model_size=64, num_layers=2, num_heads=4, intermediate_size=96, norm_eps=1e-5)
    yield "echo_tts text", TextEncoder(vocab_size=50, **sizes), lambda m: m(PROMPT)
    model = SpeakerEncoder(latent_size=16, patch_size=2, **sizes)
    speech = normal((1, 8, 16))
    yield "echo_tts speaker", model, lambda m: m(speech)

    channels, mask = normal((1, 64, 6)), mx.ones((1, 1, 6))
    yield "melotts", Encoder(64, 96, 4, 2, 3), lambda m: m(channels, mask)

    config = TransformerConfig(dim=64, n_heads=4, n_layers=2, context_dim=64, out_channels=16)
    wide, steps = normal((2, 6, 64)), mx.array([0.2, 0.7])
    yield "sam_audio", DiT(config), lambda m: m(wide, steps, memory=wide[:, :3])
