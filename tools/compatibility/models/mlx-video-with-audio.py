"""Wan's transformer block and decoders, and LTX's blocks of a video."""

import mlx.core as mx
from mlx_video.models.ltx.config import TransformerConfig
from mlx_video.models.ltx.transformer import BasicAVTransformerBlock, TransformerArgs
from mlx_video.models.wan import rope, vae, vae22
from mlx_video.models.wan.transformer import WanAttentionBlock

normal = mx.random.normal


def families():
    tokens, text = normal((1, 24, 96)), normal((1, 7, 96))
    freqs = mx.concatenate([rope.rope_params(64, part) for part in (16, 16, 16)], axis=1)
    block = WanAttentionBlock(96, 128, 2, cross_attn_norm=True)
    e = normal((1, 1, 6, 96))
    yield "wan", block, lambda m: m(tokens, e, [24], [(2, 3, 4)], freqs, text)

    small = dict(dim=16, z_dim=4, dim_mult=[1, 2], num_res_blocks=1)
    latents = normal((1, 4, 1, 4, 4))
    yield "wan's VAE", vae.Decoder3d(**small, temporal_upsample=[True]), lambda m: m(latents)

    volume = normal((1, 2, 4, 4, 32))
    yield "wan 2.2's VAE", vae22.ResidualBlock(32, 32), lambda m: m(volume)

    video = BasicAVTransformerBlock(0, video=TransformerConfig(64, 2, 32, 64))
    x, context, steps = normal((1, 24, 64)), normal((1, 7, 64)), normal((1, 1, 384))
    angles = mx.random.uniform(0, 6.28, (1, 24, 64))
    given = dict.fromkeys(TransformerArgs.__dataclass_fields__)
    given |= dict(x=x, context=context, timesteps=steps, enabled=True)
    given["positional_embeddings"] = (mx.cos(angles), mx.sin(angles))
    yield "ltx", video, lambda m: m(TransformerArgs(**given))[0].x
