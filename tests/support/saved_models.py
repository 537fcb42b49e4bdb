"""Tiny models in folders, as mlx_lm loads them."""

import json
from pathlib import Path

import mlx.core as mx
from mlx.utils import tree_flatten

from mlx_norms.commands import _tiny_models


def save(name: str, folder: Path) -> None:
    """Write a tiny model with a tokenizer that has a word for each token, as w17."""
    from tokenizers import Tokenizer, models, pre_tokenizers

    model = _tiny_models.build(name)
    mx.save_safetensors(str(folder / "model.safetensors"), dict(tree_flatten(model.parameters())))
    config = _tiny_models._configuration(name)["config"]
    (folder / "config.json").write_text(json.dumps(config))
    words = {f"w{i}": i for i in range(_tiny_models.vocabulary(name))}
    tokenizer = Tokenizer(models.WordLevel(words, unk_token="w0"))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    tokenizer.save(str(folder / "tokenizer.json"))
    kind = {"tokenizer_class": "PreTrainedTokenizerFast", "eos_token": "w1"}
    (folder / "tokenizer_config.json").write_text(json.dumps(kind))
