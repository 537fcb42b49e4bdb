"""The tiny models of mlx_lm as deep as a published one; their widths stay tiny.

``deep_models.json`` has, for each, the model it is as deep as, usually the largest of its
architecture, or null where none is known, and the fields of its configuration that this changes:
the number of layers, and after it what depends on it.
"""

from __future__ import annotations

import functools
import json
from pathlib import Path

import mlx.nn

from mlx_norms.commands import _tiny_models


@functools.cache
def published() -> dict[str, dict]:
    """The model and the fields, by the name of the tiny model."""
    return json.loads(Path(__file__).with_suffix(".json").read_text(encoding="utf-8"))


def layers(name: str) -> int:
    """The number of layers."""
    return next(iter(published()[name]["config"].values()))


def build(name: str) -> mlx.nn.Module:
    """Make the model as :func:`_tiny_models.build` does. A list of layers is repeated."""
    config = _tiny_models._configuration(name)["config"]
    of_text = config.get("text_config", config)
    fields = published()[name]["config"]
    field, depth = next(iter(fields.items()))
    few = of_text.get(field, depth)
    repeated = {
        key: (value * depth)[:depth]
        for key, value in of_text.items()
        if isinstance(value, list) and len(value) >= few
    }
    deep = of_text | repeated | fields
    return _tiny_models.build(name, **({"text_config": deep} if "text_config" in config else deep))
