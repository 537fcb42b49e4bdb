"""Encoders of text, whose embeddings are normalized."""

import mlx.core as mx
from mlx_embeddings.models import bert, gemma3_text, modernbert, qwen3, xlm_roberta

SIZES = dict(hidden_size=64, num_hidden_layers=2, intermediate_size=96, vocab_size=50)
SIZES |= dict(num_attention_heads=4, max_position_embeddings=64, num_key_value_heads=2)
SIZES |= dict(head_dim=16, query_pre_attn_scalar=16, sliding_window_pattern=2)
PROMPT, MASK = mx.array([[3, 1, 4, 1, 5]]), mx.ones((1, 5))


def families():
    for module in (bert, xlm_roberta, modernbert, gemma3_text, qwen3):
        name = module.__name__.split(".")[-1]
        model = module.Model(module.ModelArgs.from_dict(SIZES | dict(model_type=name)))
        yield name, model, lambda m: m(PROMPT, attention_mask=MASK)
