"""Group, instance and batch norms, ours and mlx.nn's, as functions of arrays."""

from __future__ import annotations

import functools
import math

import mlx.core as mx
import mlx.nn

import mlx_norms

EPS = 1e-5
GROUPS = 32


def group(x, weight, bias, *, groups=None, adjoining=False, silu=False):
    return mlx_norms.group_norm(
        x,
        groups or _groups(x),
        weight,
        bias,
        EPS,
        pytorch_compatible=adjoining,
        activation="silu" if silu else None,
    )


def mlx_group(x, weight, bias, *, groups=None, adjoining=False, silu=False):
    layer = _layer("GroupNorm", groups or _groups(x), x.shape[-1], pytorch_compatible=adjoining)
    layer.weight, layer.bias = weight, bias
    y = layer(x)
    return mlx.nn.silu(y) if silu else y


def instance(x):
    return mlx_norms.instance_norm(x, eps=EPS)


def mlx_instance(x):
    return _layer("InstanceNorm", x.shape[-1])(x)


def batch(x, weight, bias, mean=None, var=None, *, training=False):
    """y, and in training with running statistics the new ones."""
    return mlx_norms.batch_norm(x, weight, bias, EPS, mean=mean, var=var, training=training)


def mlx_batch(x, weight, bias, mean=None, var=None, *, training=False):
    tracks = mean is not None
    layer = _layer("BatchNorm", x.shape[-1], track_running_stats=tracks)
    layer.train(training)
    layer.weight, layer.bias = weight, bias
    if tracks:
        layer.running_mean, layer.running_var = mean, var
    y = layer(x)
    return (y, layer.running_mean, layer.running_var) if training and tracks else y


def _groups(x: mx.array) -> int:
    return math.gcd(GROUPS, x.shape[-1])


@functools.cache
def _layer(name: str, *args, **options) -> mlx.nn.Module:
    return getattr(mlx.nn, name)(*args, eps=EPS, **options)
