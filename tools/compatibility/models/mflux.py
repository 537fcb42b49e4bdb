"""Transformers and autoencoders of its families, as far as their widths are options."""

from types import SimpleNamespace

import mlx.core as mx
from mflux.models.common.config.model_config import ModelConfig
from mflux.models.fibo.model.fibo_vae.decoder.wan_2_2_decoder_3d import Wan2_2_Decoder3d
from mflux.models.flux.model.flux_transformer import ada_layer_norm_continuous as flux
from mflux.models.flux2.model.flux2_transformer.transformer import Flux2Transformer
from mflux.models.flux2.model.flux2_vae.decoder.decoder import Flux2Decoder
from mflux.models.ideogram4.model.ideogram4_transformer.config import Ideogram4Config
from mflux.models.ideogram4.model.ideogram4_transformer.transformer import Ideogram4Transformer
from mflux.models.qwen.model.qwen_transformer.qwen_transformer import QwenTransformer
from mflux.models.qwen.model.qwen_vae.qwen_image_mid_block_3d import QwenImageMidBlock3D
from mflux.models.seedvr2.model.seedvr2_transformer.transformer import SeedVR2Transformer
from mflux.models.seedvr2.model.seedvr2_vae.vae import SeedVR2VAE
from mflux.models.z_image.model.z_image_transformer.transformer import ZImageTransformer
from mflux.models.z_image.model.z_image_vae.common.unet_mid_block import UNetMidBlock
from mlx.utils import tree_flatten

normal = mx.random.normal
half = mx.array([0.5])


def transformers():
    model = Flux2Transformer(
        in_channels=8,
        num_layers=1,
        num_single_layers=1,
        attention_head_dim=16,
        num_attention_heads=2,
        joint_attention_dim=24,
        axes_dims_rope=(4, 4, 4, 4),
    )
    image, text = normal((1, 6, 8)), normal((1, 3, 24))
    places = mx.zeros((6, 4)), mx.zeros((3, 4))
    yield "flux2", model, lambda m: m(image, text, half, *places)

    model = QwenTransformer(8, 2, 2, 128, 1, 24)
    config = SimpleNamespace(height=32, width=48, scheduler=SimpleNamespace(sigmas=half))
    mask = mx.ones((1, 3), mx.int32)
    yield "qwen", model, lambda m: m(0, config, image, text, mask)

    sizes = dict(in_channels=4, dim=64, n_layers=2, n_refiner_layers=1, n_heads=4, cap_feat_dim=24)
    model = ZImageTransformer(**sizes, axes_dims=[4, 6, 6], axes_lens=[128, 32, 32])
    picture = normal((4, 1, 8, 8))
    yield "z_image", model, lambda m: m(picture, 0, half, text[0])

    model = SeedVR2Transformer(
        vid_in_channels=4,
        vid_out_channels=2,
        vid_dim=64,
        txt_in_dim=24,
        heads=2,
        head_dim=32,
        num_layers=2,
        mm_layers=1,
        rope_dim=24,
    )
    video = normal((1, 4, 1, 8, 8))
    if mx.__version__ != "0.32.2":  # which ends the process in it on the CPU, without us, too
        yield "seedvr2", model, lambda m: m(video, text, half)

    model = Ideogram4Transformer(Ideogram4Config(64, 2, 4, 96, 32, 8, 24, 10000, (4, 2, 2)))
    weights = [(k, w) for k, w in tree_flatten(model.parameters()) if w.dtype == mx.uint8]
    model.load_weights([(k, mx.to_fp8(0.2 * normal(w.shape))) for k, w in weights], strict=False)
    tokens = mx.zeros((1, 6), mx.int32)
    options = dict(
        llm_features=normal((1, 6, 24)),
        x=normal((1, 6, 8)),
        t=half,
        position_ids=mx.zeros((1, 6, 3), mx.int32),
        segment_ids=tokens,
        indicator=mx.array([[3, 3, 2, 2, 2, 2]]),
    )
    yield "ideogram4", model, lambda m: m(**options)


def blocks():
    wide, vector = normal((1, 6, 64)), normal((1, 64))
    yield "flux last norm", flux.AdaLayerNormContinuous(64, 64), lambda m: m(wide, vector)


def autoencoders():
    volume = normal((1, 32, 1, 6, 6))
    yield "qwen's VAE", QwenImageMidBlock3D(32), lambda m: m(volume)

    model = Wan2_2_Decoder3d(8, 32, [1, 2], 1, [False], out_channels=4)
    yield "fibo's VAE", model, lambda m: m(volume)

    yield "flux2's VAE", Flux2Decoder(block_out_channels=(32, 64)), lambda m: m(volume[:, :, 0])

    yield "z_image's VAE", UNetMidBlock(32), lambda m: m(volume[:, :, 0])

    video = normal((1, 3, 1, 16, 16))
    model = SeedVR2VAE(block_out_channels=(32, 64))
    yield "seedvr2's VAE", model, lambda m: m.decode(m.encode(video))


def families():
    ModelConfig.precision = mx.float32  # to which they cast, of 16 bits otherwise
    yield from transformers()
    yield from blocks()
    yield from autoencoders()
