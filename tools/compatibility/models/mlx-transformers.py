"""Models of its own: each has an RMS norm that it writes, or layer norms of ``mlx.nn``."""

import mlx.core as mx
from mlx_transformers.models import bert, gemma3, llama, phi3, qwen3
from transformers import BertConfig, LlamaConfig, Phi3Config, Qwen3Config
from transformers.models.gemma3 import Gemma3TextConfig

SIZES = dict(hidden_size=64, num_hidden_layers=2, intermediate_size=96, vocab_size=50)
SIZES |= dict(num_attention_heads=4, num_key_value_heads=2, head_dim=16, pad_token_id=0)
PROMPT = mx.array([[3, 1, 4, 1, 5]])


def families():
    for cls, config in (
        (llama.LlamaModel, LlamaConfig),
        (phi3.Phi3Model, Phi3Config),
        (qwen3.Qwen3Model, Qwen3Config),
        (gemma3.Gemma3TextModel, Gemma3TextConfig),
        (bert.BertModel, BertConfig),
    ):
        name, options = cls.__module__.split(".")[-1], dict(input_ids=PROMPT)
        if name == "gemma3":
            masks = ("full_attention", "sliding_attention")
            options["attention_mask"] = dict.fromkeys(masks, mx.zeros((1, 1, 5, 5)))
        yield name, cls(config(**SIZES)), lambda m, options=options: m(**options)
