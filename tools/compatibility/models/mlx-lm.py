"""A Llama, a Gemma, and models with norms of their own."""

import mlx.core as mx
from mlx_lm.models import gemma2, llama


def families():
    sizes = dict(hidden_size=64, num_hidden_layers=2, intermediate_size=96, vocab_size=50)
    sizes |= dict(num_attention_heads=4, num_key_value_heads=2, rms_norm_eps=1e-5, head_dim=16)
    for module in (llama, gemma2):
        model = module.Model(module.ModelArgs.from_dict(dict(model_type="tiny") | sizes))
        yield module.__name__.split(".")[-1], model, lambda m: m(mx.array([[3, 1, 4, 1, 5]]))
