"""Every model architecture of mlx_lm 0.32.2, as a model of a few layers with random weights.

For each name, ``_tiny_models.json`` has mlx_lm's module and the fields of its ``ModelArgs`` that
differ from their defaults. Most names are the module's; a few modules have several models.
"""

from __future__ import annotations

import copy
import difflib
import functools
import importlib
import json
from pathlib import Path
from types import ModuleType

import mlx.core as mx
import mlx.nn
from mlx.utils import tree_map

from .. import _package_data
from . import CommandError

_FILE = Path(__file__).with_suffix(".json")
_MLX_LM = "mlx-lm==0.32.2"
_METAL_ONLY = {"bitnet", "muse_spark"}  # they call Metal kernels of mlx_lm's own
_EXCLUDED = {
    "olmo": "mlx_lm's olmo fails on a prompt of more than one token: it adds its attention scores "
    'and the mask "causal", a string'
}
_SPREAD = 0.2  # standard deviation of the random values in place of constants


def names() -> list[str]:
    """The names of the models that run on the default device."""
    return [name for name in _configurations() if name not in _METAL_ONLY or _on_metal()]


def vocabulary(name: str) -> int:
    """The vocabulary size: token ids are below it. Does not build the model.

    Raises:
        ValueError: If there is no such model, or it does not run on this device.
    """
    config = _configuration(name)["config"]
    fields = config.get("text_config", {}) | config
    return fields["num_vocab"] if "num_vocab" in fields else fields["vocab_size"]


def build(name: str, seed: int = 0, **fields: object) -> mlx.nn.Module:
    """Make a model with random weights.

    They are float32, the only dtype in which mixtures of experts run on the CPU. Parameters that
    mlx_lm initializes to a constant, such as the ones of a norm's weight, are drawn around it, so
    that leaving out a norm's weight changes the result. Seeds MLX's default random generator.

    Args:
        name (str): One of :func:`names`.
        seed (int): The seed of the weights.
        **fields (object): Fields of ``ModelArgs`` in place of the tiny model's.

    Returns:
        mlx.nn.Module: mlx_lm's model, in evaluation mode, with its parameters evaluated.

    Raises:
        ValueError: If there is no such model, or it does not run on this device.
        CommandError: If mlx_lm is not installed, or its version lacks this model.
    """
    configuration = _configuration(name)
    module = _import(configuration["module"])
    mx.random.seed(seed)
    # A copy, since some of mlx_lm's classes modify their configuration.
    config = copy.deepcopy(configuration["config"]) | fields
    model = module.Model(module.ModelArgs.from_dict(config))
    model.update(tree_map(_drawn_around_constant, model.parameters()))
    model.eval()
    mx.eval(model.parameters())
    return model


@functools.cache
def _configurations() -> dict[str, dict]:
    try:
        configurations = json.loads(_FILE.read_text(encoding="utf-8"))
        for configuration in configurations.values():
            configuration["module"], configuration["config"]
    except (OSError, ValueError, AttributeError, KeyError, TypeError) as error:
        raise CommandError(_package_data.damaged(_FILE, error)) from None
    return configurations


def _configuration(name: str) -> dict:
    if name in _EXCLUDED:
        raise ValueError(f"there is no tiny model {name!r}: {_EXCLUDED[name]}")
    if name not in _configurations():
        close = difflib.get_close_matches(name, names(), n=4)
        hint = f", but there are {', '.join(close)}" if close else f" among {', '.join(names())}"
        raise ValueError(f"there is no tiny model {name!r}{hint}")
    if name not in names():
        raise ValueError(f"the tiny model {name!r} runs on Metal only")
    return _configurations()[name]


def _on_metal() -> bool:
    return mx.metal.is_available() and mx.default_device() == mx.gpu


def _import(module: str) -> ModuleType:
    try:
        return importlib.import_module(f"mlx_lm.models.{module}")
    except ModuleNotFoundError as error:
        raise CommandError(
            f"The tiny models need {error.name}: type  pip install {_MLX_LM}"
        ) from None


def _drawn_around_constant(parameter: mx.array) -> mx.array:
    floating = mx.issubdtype(parameter.dtype, mx.floating)
    if not floating or mx.any(parameter != parameter.flatten()[0]).item():
        return parameter
    noise = _SPREAD * mx.random.normal(parameter.shape)
    return parameter + noise.astype(parameter.dtype)
