"""Blocks of models from the packages that have them, unchanged, with random weights.

Each is at the full width of its model, or tiny. Only the modules that a block needs are imported,
not what its whole package does.
"""

from __future__ import annotations

import contextlib
import importlib
import importlib.metadata
import math
import sys
import types
from collections.abc import Callable, Iterator
from typing import NamedTuple

import mlx.core as mx
import mlx.nn as nn

from . import diffusion
from .bare_packages import bare_packages
from .random_weights import randomize

_TINY_DECODER = dict(dim=16, z_dim=4, dim_mult=[1, 2], num_res_blocks=1, temporal_upsample=[True])


class Block(NamedTuple):
    """A block and what it is called with.

    Attributes:
        module: Whose parameters are the weights.
        call: A function of the module and the arrays.
        arrays: The inputs.
        inputs: How many of the first have a gradient.
        source: Where the code is from.
    """

    module: nn.Module
    call: Callable
    arrays: list[mx.array]
    inputs: int
    source: str


@contextlib.contextmanager
def _stubs(**contents: dict) -> Iterator[None]:
    """Modules with what is given and nothing useful else; their names have "__" for dots."""
    for name, names in contents.items():
        stub = types.ModuleType(name.replace("__", "."))
        vars(stub).update(names, __getattr__=lambda name: object)
        sys.modules[stub.__name__] = stub
    try:
        yield
    finally:
        for name in contents:
            del sys.modules[name.replace("__", ".")]


def _imported(package: str, *names: str) -> list[types.ModuleType]:
    """Modules of a package. They stay loaded: a patch looks for functions in loaded modules."""
    root = package.split(".")[0]
    known = set(sys.modules)
    with bare_packages(package):
        modules = [importlib.import_module(f"{package}.{name}") for name in names]
        loaded = {
            name: module
            for name, module in sys.modules.items()
            if name not in known and name.split(".")[0] == root
        }
    sys.modules.update(loaded)
    return modules


def _source(distribution: str) -> str:
    return f"{distribution} {importlib.metadata.version(distribution)}"


def _normal(dtype: mx.Dtype, *shapes: tuple) -> list[mx.array]:
    arrays = [mx.random.normal(shape).astype(dtype) for shape in shapes]
    mx.eval(arrays)
    return arrays


def _flux2(tiny: bool, dtype: mx.Dtype, file: str, name: str) -> tuple[nn.Module, int, list]:
    """A block, its width, and arrays: angles of all tokens."""
    config = {"ModelConfig": types.SimpleNamespace(precision=dtype)}
    with _stubs(mflux__models__common__config__model_config=config):
        (module,) = _imported("mflux.models.flux2.model.flux2_transformer", file)
    heads, length = (2, 32) if tiny else (24, 128)
    block = getattr(module, name)(heads * length, heads, length)
    randomize(block, dtype)
    tokens = 24 if tiny else 4096 + 512
    angles = mx.random.uniform(0, 6.28, (tokens, length // 2))
    mx.eval(angles)
    return block, heads * length, [angles]


def flux2(tiny: bool, dtype: mx.Dtype) -> Block:
    block, width, rest = _flux2(tiny, dtype, "transformer_block", "Flux2TransformerBlock")
    text = 8 if tiny else 512
    image = rest[0].shape[0] - text
    modulations = [(1, 1, 6 * width)] * 2
    arrays = _normal(dtype, (1, image, width), (1, text, width), *modulations)

    def call(module, image, text, of_image, of_text, angles):
        pairs = [(m[:3], m[3:]) for m in (mx.split(of, 6, axis=-1) for of in (of_image, of_text))]
        return module(image, text, *pairs, (mx.cos(angles), mx.sin(angles)))

    return Block(block, call, arrays + rest, 4, _source("mflux"))


def flux2_single(tiny: bool, dtype: mx.Dtype) -> Block:
    names = ("single_transformer_block", "Flux2SingleTransformerBlock")
    block, width, rest = _flux2(tiny, dtype, *names)
    arrays = _normal(dtype, (1, rest[0].shape[0], width), (1, 1, 3 * width))

    def call(module, tokens, modulation, angles):
        return module(tokens, mx.split(modulation, 3, axis=-1), (mx.cos(angles), mx.sin(angles)))

    return Block(block, call, arrays + rest, 2, _source("mflux"))


def qwen_image(tiny: bool, dtype: mx.Dtype) -> Block:
    sizes = diffusion.TINY if tiny else diffusion.Sizes()
    block, source = diffusion.build(sizes, dtype)
    return Block(block, diffusion.stock, diffusion.inputs(sizes, dtype), 3, source)


def ideogram4(tiny: bool, dtype: mx.Dtype) -> Block:
    """Weights in 8 bits have no gradient."""
    stub = {"ModelConfig": types.SimpleNamespace(precision=dtype)}
    reader = "mflux__models__common__weights__loading__safetensors_reader"
    with _stubs(mflux__models__common__config=stub, **{reader: {}}):
        package = "mflux.models.ideogram4.model.ideogram4_transformer"
        (module,) = _imported(package, "transformer_block")
    width, wide, heads, conditions, tokens = (
        (64, 96, 2, 32, 12) if tiny else (*(4608, 12288, 18, 512, 2048),)
    )
    block = module.Ideogram4TransformerBlock(width, wide, heads, 1e-5, conditions)
    for layer in block.modules():
        if hasattr(layer, "weight_scale"):
            shape = (layer.out_features, layer.in_features)
            deviation = layer.in_features**-0.5
            layer.weight = mx.to_fp8(deviation * mx.random.normal(shape))
            layer.weight_scale = mx.ones(shape[0])
    randomize(block, dtype, float32=("weight_scale",))
    arrays = _normal(dtype, (1, tokens, width), (1, 1, conditions))
    angles = mx.random.uniform(0, 6.28, (1, tokens, width // heads))

    def call(module, tokens, conditions, angles):
        # Angles in the tokens' dtype, as the model casts them.
        cos, sin = mx.cos(angles).astype(tokens.dtype), mx.sin(angles).astype(tokens.dtype)
        segments = mx.zeros(tokens.shape[:2], mx.int32)
        return module(tokens, segments, cos, sin, conditions)

    return Block(block, call, [*arrays, angles], 2, _source("mflux"))


def wan(tiny: bool, dtype: mx.Dtype) -> Block:
    """The residual stream and the modulation are float32, as in the model."""
    transformer, rope = _imported("mlx_video.models.wan", "transformer", "rope")
    width, wide, heads, grid = (96, 128, 2, (2, 3, 4)) if tiny else (5120, 13824, 40, (4, 32, 32))
    block = transformer.WanAttentionBlock(width, wide, heads, cross_attn_norm=True)
    randomize(block, dtype, float32=("modulation",))
    arrays = _normal(mx.float32, (1, math.prod(grid), width), (1, 1, 6, width))
    arrays += _normal(dtype, (1, 7 if tiny else 512, width))
    length = width // heads
    # As the model has them: of each third of a head.
    parts = (length - 4 * (length // 6), *[2 * (length // 6)] * 2)
    freqs = mx.concatenate([rope.rope_params(64, part) for part in parts], axis=1)
    rotations = rope.rope_precompute_cos_sin([grid], freqs, dtype=dtype)
    mx.eval(freqs, rotations)

    def call(module, x, e, context):
        options = dict(rope_cos_sin=rotations)
        return module(x, e, [x.shape[1]], [grid], freqs, context, **options)

    return Block(block, call, arrays, 3, _source("mlx-video-with-audio"))


def wan_vae(tiny: bool, dtype: mx.Dtype) -> Block:
    (vae,) = _imported("mlx_video.models.wan", "vae")
    decoder = vae.Decoder3d(**(_TINY_DECODER if tiny else {}))
    randomize(decoder, dtype)
    shape = (1, 4, 1, 4, 4) if tiny else (1, 16, 2, 32, 32)
    return Block(
        decoder,
        lambda module, x: module(x),
        _normal(dtype, shape),
        1,
        _source("mlx-video-with-audio"),
    )


def ltx(tiny: bool, dtype: mx.Dtype) -> Block:
    """Of video alone."""
    transformer, config = _imported("mlx_video.models.ltx", "transformer", "config")
    heads, length, tokens, text = (2, 32, 24, 7) if tiny else (32, 128, 4096, 256)
    width = heads * length
    block = transformer.BasicAVTransformerBlock(
        0, video=config.TransformerConfig(width, heads, length, width)
    )
    randomize(block, dtype)
    arrays = _normal(dtype, (1, tokens, width), (1, 1, 6 * width), (1, text, width))
    angles = mx.random.uniform(0, 6.28, (1, tokens, width))
    mx.eval(angles)

    def call(module, x, timesteps, context, angles):
        arguments = transformer.TransformerArgs(
            x=x,
            context=context,
            context_mask=None,
            timesteps=timesteps,
            embedded_timestep=None,
            positional_embeddings=(mx.cos(angles), mx.sin(angles)),
            cross_positional_embeddings=None,
            cross_scale_shift_timestep=None,
            cross_gate_timestep=None,
            prompt_timestep=None,
            enabled=True,
        )
        return module(arguments)[0].x

    return Block(block, call, [*arrays, angles], 3, _source("mlx-video-with-audio"))


def qwen3(tiny: bool, dtype: mx.Dtype, *, tokens: int) -> Block:
    """Four layers, and one of a decode step after 512 tokens if ``tokens`` is 1."""
    with _stubs(transformers={}):
        qwen3, llama, cache = _imported("mlx_transformers.models", "qwen3", "llama", "cache")
    sizes = (64, 4, 2, 16, 96) if tiny else (2560, 32, 8, 128, 9728)
    names = ("hidden_size", "num_attention_heads", "num_key_value_heads", "head_dim")
    config = types.SimpleNamespace(
        **dict(zip((*names, "intermediate_size"), sizes, strict=True)),
        hidden_act="silu",
        attention_dropout=0.0,
        attention_bias=False,
        rms_norm_eps=1e-6,
        rope_theta=1e6,
        max_position_embeddings=4096,
        _attn_implementation="sdpa",
    )
    layers = nn.Sequential(*[qwen3.Qwen3DecoderLayer(config, i) for i in range(4)])
    randomize(layers, dtype)
    past = (7 if tiny else 512) if tokens == 1 else 0
    tokens = min(tokens, 24) if tiny else tokens
    kept = [(1, config.num_key_value_heads, past, config.head_dim)] * 8 if past else []
    arrays = _normal(dtype, (1, tokens, config.hidden_size), *kept)
    rotary = llama.LlamaRotaryEmbedding(config=config)
    positions = mx.arange(past, past + tokens)[None]
    mask = None if tokens == 1 else mx.triu(mx.full((tokens, tokens), -1e9, dtype), k=1)[None, None]

    def call(module, x, *kept):
        values = cache.DynamicCache.from_legacy_cache(list(zip(kept[::2], kept[1::2], strict=True)))
        rotations = rotary(x, positions)
        for layer in module.layers:
            own_mask = mask if mask is None else mask.astype(x.dtype)
            x = layer(x, rotations, own_mask, values if kept else None, False, bool(kept))[0]
        return x

    return Block(layers, call, arrays, 1, _source("mlx-transformers"))


def vibevoice_head(tiny: bool, dtype: mx.Dtype) -> Block:
    """Of the 1.5B model, for one token with and without guidance."""
    with _stubs(mlx_audio__tts__models__base={}):
        head, config = _imported("mlx_audio.tts.models.vibevoice", "diffusion_head", "config")
    width = 64 if tiny else 1536
    model = head.DiffusionHead(config.DiffusionHeadConfig(hidden_size=width, latent_size=64))
    randomize(model, dtype)
    arrays = _normal(dtype, (2, 64), (2, width)) + [mx.array([500.0, 500.0]).astype(dtype)]

    def call(module, noise, condition, steps):
        return module(noise, steps, condition)

    return Block(model, call, arrays, 2, _source("mlx-audio"))


BLOCKS: dict[str, Callable[[bool, mx.Dtype], Block]] = {
    "flux2": flux2,
    "flux2 single": flux2_single,
    "qwen image": qwen_image,
    "wan": wan,
    "wan vae": wan_vae,
    "ltx": ltx,
    "qwen3 prefill": lambda tiny, dtype: qwen3(tiny, dtype, tokens=1024),
    "qwen3 decode": lambda tiny, dtype: qwen3(tiny, dtype, tokens=1),
    "ideogram4": ideogram4,
    "vibevoice head": vibevoice_head,
}
