"""Blocks of an image model's decoder, mflux's of FLUX, as mflux has them and with our norms."""

from __future__ import annotations

import importlib
import importlib.metadata
import sys
import types
from collections.abc import Callable

import mlx.core as mx
import mlx.nn as nn

import mlx_norms

from .bare_packages import bare_packages
from .random_weights import randomize

_PACKAGE = "mflux.models.flux.model.flux_vae"
# By name: the module and class, and the channels that it is called with.
BLOCKS = {
    "decoder block": ("decoder", "up_block_3", "UpBlock3", 512),
    "UNet block": ("common", "unet_mid_block", "UnetMidBlock", 512),
}


def build(name: str, dtype: mx.Dtype, seed: int = 0) -> tuple[nn.Module, str]:
    """mflux's block with random weights, computing in a dtype, and where its code is from."""
    folder, file, cls, _ = BLOCKS[name]
    with bare_packages(f"{_PACKAGE}.{folder}"):
        # What it casts norms to; mflux's own module needs packages that a block does not.
        config = types.ModuleType("mflux.models.common.config")
        config.ModelConfig = types.SimpleNamespace(precision=dtype)
        sys.modules[config.__name__] = config
        module = importlib.import_module(f"{_PACKAGE}.{folder}.{file}")
    block = getattr(module, cls)()
    mx.random.seed(seed)
    randomize(block, dtype)
    return block, f"mflux {importlib.metadata.version('mflux')}"


def image(name: str, side: int, dtype: mx.Dtype) -> mx.array:
    """An input, channels first, as the model's arrays are."""
    x = mx.random.normal((1, BLOCKS[name][-1], side, side)).astype(dtype)
    mx.eval(x)
    return x


def called(block: nn.Module, x: mx.array) -> mx.array:
    return block(x)


def called_patched(block: nn.Module, x: mx.array) -> mx.array:
    with mlx_norms.patched():
        return block(x)


def replaced(name: str, dtype: mx.Dtype) -> nn.Module:
    """The same block with our layers."""
    block, _ = build(name, dtype)
    mlx_norms.nn.replace(block)
    return block


def sides(name: str, dtype: mx.Dtype) -> dict[str, tuple[Callable, nn.Module]]:
    """What calls a block, and the block: mflux's, with our layers, and patched."""
    stock, _ = build(name, dtype)
    return {
        "mflux": (called, stock),
        "replaced": (called, replaced(name, dtype)),
        "patched": (called_patched, stock),
    }
