"""The steps of MLX's chains, as MLX computes them."""

from __future__ import annotations

import mlx.core as mx
import mlx.nn as nn

ACTIVATIONS = {
    "silu": nn.silu,
    "sigmoid": mx.sigmoid,
    "gelu": nn.gelu,
    "relu2": nn.relu2,
    None: lambda z: z,
}


def rms(x, weight=None, *, eps):
    return mx.fast.rms_norm(x, weight, eps)


def layer(x, weight=None, bias=None, *, eps):
    return mx.fast.layer_norm(x, weight, bias, eps)


def unit(x, *, eps, eps_inside):
    v = x.astype(mx.float32)
    if eps_inside:
        return (v * mx.rsqrt((v * v).sum(-1, keepdims=True) + eps)).astype(x.dtype)
    return (v / mx.maximum(mx.linalg.norm(v, axis=-1, keepdims=True), eps)).astype(x.dtype)


def total(x, *others, clamp=False):
    """The sum that an op rounds."""
    for other in others:
        x = x + other
    if clamp and x.dtype == mx.float16:
        x = mx.clip(x, -65504.0, 65504.0)
    return x


def scaled(x, factor):
    return x * factor


def shifted(weight, offset):
    return 1.0 * offset + weight


def activated(name, z):
    return ACTIVATIONS[name](z)


def moved(f, x):
    """What is x in another shape or order."""
    return f(x)


def rope(x, dims, *, base, offset=0, traditional=False):
    """Of [batch, heads, tokens, head_dim]."""
    return mx.fast.rope(x, dims, traditional=traditional, base=base, scale=1.0, offset=offset)


def group(x, *parameters, groups, compatible, eps):
    c = x.shape[-1]
    norm = nn.GroupNorm(groups, c or groups, eps, bool(parameters), compatible)
    return _with(norm, parameters)(x)


def instance(x, *parameters, eps):
    return _with(nn.InstanceNorm(x.shape[-1], eps, bool(parameters)), parameters)(x)


def batch(x, *parameters, mean=None, var=None, training, momentum, eps):
    """y, and in training with running statistics the new ones."""
    norm = nn.BatchNorm(x.shape[-1], eps, momentum, affine=bool(parameters))
    norm.train(training)
    if mean is None:
        norm.track_running_stats = False
    else:
        norm.running_mean, norm.running_var = mean, var
    y = _with(norm, parameters)(x)
    return [y, norm.running_mean, norm.running_var] if training and mean is not None else y


def product(x, matrix, offset=None):
    """x by the transpose of a matrix."""
    return x @ matrix.T if offset is None else mx.addmm(offset, x, matrix.T)


def matmul(a, b):
    return a @ b


def quantized(x, *parts, group_size, bits):
    return mx.quantized_matmul(x, *parts, group_size=group_size, bits=bits)


def _with(norm, parameters):
    if parameters:
        norm.weight, norm.bias = parameters
    return norm
