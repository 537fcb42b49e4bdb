"""Norms of images and of batches, and products."""

from __future__ import annotations

import mlx.core as mx

import mlx_norms

from .op import op

AFFINE = dict(weight="C", bias="C")


def group(m, x, *, eps, num_groups, pytorch_compatible=False, activation=None, **parameters):
    options = dict(groups=num_groups, compatible=pytorch_compatible, eps=eps)
    return m.activated(activation, m.group(x, *parameters.values(), **options))


def instance(m, x, *, eps, **parameters):
    return m.instance(x, *parameters.values(), eps=eps)


def batch(m, x, weight=None, bias=None, *, var=None, momentum=0.1, **options):
    parameters = [] if weight is None else [weight, bias]
    var = None if var is None else var * var
    return m.batch(x, *parameters, var=var, momentum=momentum, **options)


def our_batch(x, *, mean=None, var=None, **options):
    """Of a deviation, which may be any number."""
    var = None if var is None else var * var
    return mlx_norms.batch_norm(x, mean=mean, var=var, **options)


for compatible, activation, parameters in (
    *((False, None, AFFINE), (True, None, AFFINE), (False, "silu", AFFINE)),
    *((True, "silu", AFFINE), (True, "gelu", AFFINE), (False, None, {}), (True, None, {})),
):
    parts = [" pytorch_compatible"] * compatible + [f" {activation}"] * bool(activation)
    op(
        "group_norm" + "".join(parts) + " bare" * (not parameters),
        "group_norm",
        group,
        dict(x="BNC") | parameters,
        options=dict(num_groups=2, pytorch_compatible=compatible, activation=activation),
        multiple=dict(C=2),
    )
for axes in ("BNC", "BNPC"):
    op(f"instance_norm {axes}", "instance_norm", instance, dict(x=axes) | AFFINE)
op("instance_norm bare", "instance_norm", instance, dict(x="BNC"))
for axes in ("BC", "BNC"):
    for text, running in {"": {}, " running": dict(mean="C", var="C")}.items():
        for training in (False, True):
            op(
                f"batch_norm {axes}{text}{' training' * training}",
                our_batch,
                batch,
                dict(x=axes) | AFFINE | running,
                options=dict(training=training),
            )


def our_linear(x, matrix, more=None, offset=None, norm_weight=None, norm_bias=None, *, of, **named):
    weights = matrix if more is None else [matrix, more]
    biases = offset if more is None or offset is None else [offset, None]
    given = [norm_weight] if of == "rms" else [norm_weight, norm_bias]
    return getattr(mlx_norms, f"{of}_norm_linear")(x, *given, weights, biases=biases, **named)


def linear(m, x, matrix, more=None, offset=None, residual=None, *, of, eps, gated, **of_norm):
    s = x if residual is None else m.total(x, residual)
    n = getattr(m, of)(s, *of_norm.values(), eps=eps)
    out = [m.product(n, matrix, offset)] + ([] if more is None else [m.product(n, more)])
    if gated:
        out = [m.activated("silu", out[0]) * out[1]]
    return out if residual is None else [*out, s]


for of, given in {
    "rms": dict(norm_weight="D"),
    "layer": dict(norm_weight="D", norm_bias="D"),
}.items():
    for text, axes in {
        "": dict(x="BND", matrix="MD"),
        " two": dict(x="BND", matrix="MD", more="LD", offset="M", residual="BND"),
        " gated": dict(x="BND", matrix="MD", more="MD"),
    }.items():
        options = dict(of=of, gated=text == " gated")
        op(f"{of}_norm_linear{text}", our_linear, linear, axes | given, options=options)


def our_matmul(a, b, *, eps):
    return mlx_norms.matmul(a, b)


def matmul(m, a, b, *, eps):
    return m.matmul(a, b)


for text, a, b in (("", "BNK", "KM"), (" batched", "BNK", "BKM"), (" of a vector", "K", "KM")):
    on_metal = ("metal", "metal-sim")
    op(f"matmul{text}", our_matmul, matmul, dict(a=a, b=b), backends=on_metal)


def matrix():
    w = mx.sin(mx.arange(8 * 64, dtype=mx.float32)).reshape(8, 64)
    return mx.quantize(w, 32, 4)


def our_quantized(x, residual=None, *, eps, **options):
    return mlx_norms.quantized_matmul(x, *matrix(), residual=residual, **options)


def quantized(m, x, residual=None, *, eps, **options):
    y = m.quantized(x, *matrix(), **options)
    return y if residual is None else y + residual


for text, axes in {"": {}, " residual": dict(residual="BNM")}.items():
    op(
        f"quantized_matmul{text}",
        our_quantized,
        quantized,
        dict(x="BNQ") | axes,
        options=dict(group_size=32, bits=4),
        fixed=dict(Q=64, M=8),
    )
