"""The ops: each is a function of Python that passes its arguments on to the extension by name."""

from .groups import batch_norm, group_norm, instance_norm
from .norms import l2_norm, l2_norms, layer_norm, rms_norm, rms_norms
from .products import layer_norm_linear, matmul, quantized_matmul, rms_norm_linear
from .ropes import norm_rope, qk_norm_rope
from .sums import add_layer_norm, add_rms_norm, norm_add_norm

__all__ = [
    "add_layer_norm",
    "add_rms_norm",
    "batch_norm",
    "group_norm",
    "instance_norm",
    "l2_norm",
    "l2_norms",
    "layer_norm",
    "layer_norm_linear",
    "matmul",
    "norm_add_norm",
    "norm_rope",
    "qk_norm_rope",
    "quantized_matmul",
    "rms_norm",
    "rms_norm_linear",
    "rms_norms",
]
