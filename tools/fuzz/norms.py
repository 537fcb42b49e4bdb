"""The norms that a program calls: those of this package, or the same from mx.fast and mx.core."""

import math

import mlx.core as mx

import mlx_norms
from support.norm_case import result_type

from .jitter import in_order


class Ours:
    """The ops of this package, in the dtypes that mx.fast returns."""

    @staticmethod
    def offset_rms_norm(x, weight, eps):
        return mlx_norms.rms_norm(x, weight, eps, weight_offset=1.0, dtype=widest(x, weight))

    @staticmethod
    def add_rms_norm(x, residual, weight, eps):
        dtype = widest(x, residual, weight)
        return mlx_norms.add_rms_norm(x, residual, weight, eps, dtype=dtype)

    @staticmethod
    def add_layer_norm(x, residual, weight, bias, eps):
        return mlx_norms.add_layer_norm(
            x,
            residual,
            weight,
            bias,
            eps,
            dtype=widest(x, residual, weight, weight is not None and bias),
        )

    @staticmethod
    def head_rms_norm(x, weight, eps):
        return mlx_norms.head_rms_norm(x, weight, eps, dtype=widest(x, weight))

    @staticmethod
    def gated_norm(x, residual, factor, eps):
        return mlx_norms.add_rms_norm(x, residual, eps=eps, factor=factor)

    @staticmethod
    def modulated_norm(x, scale, shift, eps, layer):
        norm = mlx_norms.layer_norm if layer else mlx_norms.rms_norm
        return norm(x, eps=eps, scale=scale, shift=shift)

    @staticmethod
    def norm_add_norm(x, residual, post_weight, weight, eps, factor):
        return mlx_norms.norm_add_norm(x, residual, post_weight, weight, eps, factor=factor)

    @staticmethod
    def activated_norm(x, gate, activation, first, groups, eps):
        return mlx_norms.rms_norm(
            x,
            eps=eps,
            gate=gate,
            activation=activation,
            norm_before_gate=not first,
            num_groups=groups,
        )

    @staticmethod
    def channel_norm(x, weight, eps, layer, axis):
        norm = mlx_norms.layer_norm if layer else mlx_norms.rms_norm
        return norm(x, weight, eps=eps, axis=axis)

    @staticmethod
    def group_norm(x, parameters, groups, adjoining, activation, eps):
        return mlx_norms.group_norm(
            x, groups, *parameters, eps=eps, pytorch_compatible=adjoining, activation=activation
        )

    @staticmethod
    def instance_norm(x, parameters, eps):
        return mlx_norms.instance_norm(x, *parameters, eps=eps)

    @staticmethod
    def batch_norm(x, parameters, eps):
        weight, bias = parameters or (None, None)
        return mlx_norms.batch_norm(x, weight, bias, eps, mean=None, var=None, training=True)

    @staticmethod
    def l2_norm(x, eps, eps_inside):
        return mlx_norms.l2_norm(x, eps, eps_inside=eps_inside)

    @staticmethod
    def qk_norm(q, k, q_weight, k_weight, eps):
        return mlx_norms.qk_norm(q, k, q_weight, k_weight, eps)

    @staticmethod
    def rms_norms(xs, weights, eps, scales):
        return mlx_norms.rms_norms(xs, weights, eps, scales=scales)


class Stock:
    """The same ops as a model computes them without this package."""

    @staticmethod
    def offset_rms_norm(x, weight, eps):
        return mx.fast.rms_norm(x, 1.0 + weight, eps)

    @staticmethod
    def add_rms_norm(x, residual, weight, eps):
        s = add(x, residual)
        return mx.fast.rms_norm(s, weight, eps), s

    @staticmethod
    def add_layer_norm(x, residual, weight, bias, eps):
        s = add(x, residual)
        return mx.fast.layer_norm(s, weight, bias, eps), s

    @staticmethod
    def head_rms_norm(x, weight, eps):
        if weight is None or weight.ndim == 1:
            return mx.fast.rms_norm(x, weight, eps)
        return mx.fast.rms_norm(x.astype(widest(x, weight)), None, eps) * weight

    @staticmethod
    def gated_norm(x, residual, factor, eps):
        s = (residual + factor * x).astype(widest(x, residual))
        return mx.fast.rms_norm(s, None, eps), s

    @staticmethod
    def modulated_norm(x, scale, shift, eps, layer):
        y = mx.fast.layer_norm(x, None, None, eps) if layer else mx.fast.rms_norm(x, None, eps)
        return (y * (1 + scale) + shift).astype(x.dtype)

    @staticmethod
    def norm_add_norm(x, residual, post_weight, weight, eps, factor):
        n = mx.fast.rms_norm(x, post_weight, eps).astype(x.dtype)
        s = add(n if factor is None else n * factor, residual)
        return mx.fast.rms_norm(s, weight, eps).astype(s.dtype), s

    @staticmethod
    def activated_norm(x, gate, activation, first, groups, eps):
        by = None if gate is None else activated(activation, gate)
        first = first and gate is not None
        s = x * by if first else x
        parts = s.reshape(*s.shape[:-1], groups, s.shape[-1] // groups)
        y = mx.fast.rms_norm(parts, None, eps).reshape(s.shape).astype(x.dtype)
        if gate is None:
            return activated(activation, y)
        return y if first else (y * by).astype(x.dtype)

    @staticmethod
    def channel_norm(x, weight, eps, layer, axis):
        rows = mx.moveaxis(x, axis, -1)
        y = (
            mx.fast.layer_norm(rows, weight, None, eps)
            if layer
            else mx.fast.rms_norm(rows, weight, eps)
        )
        return mx.moveaxis(y.astype(x.dtype), -1, axis)

    @staticmethod
    def group_norm(x, parameters, groups, adjoining, activation, eps):
        """By mx.fast's norm of rows, in float32."""
        samples, channels = x.shape[0], x.shape[-1]
        each = channels // groups
        split, order = (
            ((groups, each), (0, 2, 1, 3)) if adjoining else ((each, groups), (0, 3, 1, 2))
        )
        parts = x.astype(mx.float32).reshape(samples, -1, *split).transpose(order)
        y = mx.fast.layer_norm(parts.reshape(samples, groups, -1), None, None, eps)
        back = (0, 2, 1, 3) if adjoining else (0, 2, 3, 1)
        y = y.reshape(parts.shape).transpose(back).reshape(x.shape)
        if parameters:
            weight, bias = parameters
            y = y * weight + bias
        return activated(activation, y).astype(x.dtype)

    @staticmethod
    def instance_norm(x, parameters, eps):
        return Stock.group_norm(x, parameters, x.shape[-1], True, None, eps)

    @staticmethod
    def batch_norm(x, parameters, eps):
        return Stock.instance_norm(x.reshape(1, -1, x.shape[-1]), parameters, eps).reshape(x.shape)

    @staticmethod
    def l2_norm(x, eps, eps_inside):
        """By mx.fast's norm, whose errors judge.py knows."""
        v, dims = x.astype(mx.float32), x.shape[-1]
        if eps_inside:
            return (mx.fast.rms_norm(v, None, eps / dims) * dims**-0.5).astype(x.dtype)
        bounded = (v * v).sum(-1, keepdims=True) < eps * eps
        unit = mx.fast.rms_norm(mx.where(bounded, 1.0, v), None, 0.0) * dims**-0.5
        return mx.where(bounded, v / eps, unit).astype(x.dtype)

    @staticmethod
    def qk_norm(q, k, q_weight, k_weight, eps):
        return tuple(
            Stock.head_rms_norm(x, w, eps).astype(x.dtype)
            for x, w in ((q, q_weight), (k, k_weight))
        )

    @staticmethod
    def rms_norms(xs, weights, eps, scales):
        norms = [
            mx.fast.rms_norm(x, w, eps).astype(x.dtype) for x, w in zip(xs, weights, strict=True)
        ]
        return tuple(y * s for y, s in zip(norms, scales or [1] * len(xs), strict=True))


def tied(op):
    """An op whose results each get a cotangent, of zeros, if any of them has one."""

    def tied_op(*arguments):
        out = op(*arguments)
        return tuple(of_all(i, out) for i in range(len(out)))

    return staticmethod(tied_op)


def of_all(i, out):
    result = out[i]
    for other in (*out[:i], *out[i + 1 :]):
        result = mx.where(mx.array(False), other.sum().astype(result.dtype), result)
    return result


class TiedStock(Stock):
    """The same, with the gradients that ops of ours with two results may have.

    One that is not used has zeros for a cotangent, which are NaN where what is before the op is not
    finite. Of MLX's two ops one would take no part.
    """

    add_rms_norm = tied(Stock.add_rms_norm)
    add_layer_norm = tied(Stock.add_layer_norm)
    gated_norm = tied(Stock.gated_norm)
    norm_add_norm = tied(Stock.norm_add_norm)
    qk_norm = tied(Stock.qk_norm)
    rms_norms = tied(Stock.rms_norms)


def activated(activation, a):
    if activation == "gelu":
        return a * (1 + mx.erf(a / math.sqrt(2))) / 2
    if activation == "relu2":
        return mx.square(mx.maximum(a, 0))
    if activation is None:
        return a
    s = mx.sigmoid(a)
    return a * s if activation == "silu" else s


def add(x, residual):
    if x.shape != residual.shape:
        raise ValueError("residual must have x's shape")
    return x + residual


def widest(*arrays):
    """The dtype that the arrays promote to; None and False are ignored."""
    dtype = arrays[0].dtype
    for a in arrays[1:]:
        if isinstance(a, mx.array):
            dtype = result_type(dtype, a.dtype)
    return dtype


def composed(layer_norm):
    """mx.fast.layer_norm in MLX's ops, as its CPU backend computes it.

    On CUDA, the gradient of MLX 0.32.4's own kernel is wrong for rows that are not whole vectors.
    """

    def composed_layer_norm(x, *arguments, **options):
        # or MLX's exception, whose text tells how the arguments are passed
        dtype = layer_norm(x, *arguments, **options).dtype
        weight, bias, eps = in_order(arguments, options)
        s = x.astype(mx.float32)
        s = s - s.mean(-1, keepdims=True)
        y = (s * mx.rsqrt((s * s).mean(-1, keepdims=True) + eps)).astype(dtype)
        y = y if weight is None else y * weight
        y = y if bias is None else y + bias
        return y.astype(dtype)  # a bias alone does not widen the result

    return composed_layer_norm
