"""The ops with the axes of their arrays by name, each beside what MLX computes it with."""

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial

import mlx.core as mx
import mlx.nn as nn

import mlx_norms

EPS = 0.1  # keeps rows of one element, whose differences cancel, well conditioned
ACTIVATIONS = {
    "silu": nn.silu,
    "sigmoid": mx.sigmoid,
    "gelu": nn.gelu,
    "relu2": nn.relu2,
    None: lambda z: z,
}


@dataclass(frozen=True)
class SizedOp:
    """An op, and a function of MLX's that has its results.

    Attributes:
        name: It, with its options.
        ours, stock: Functions of the arrays by name; each returns an array or several.
        axes: The axes of each array, a letter each, "1" for one of size 1.
        multiple: What the sizes of some axes are multiples of.
        kept: Axes whose sizes a compiled function keeps.
        fixed: The only sizes of some axes.
        backends: Where it is ours, elsewhere MLX's own function; None: everywhere.
    """

    name: str
    ours: Callable
    stock: Callable
    axes: dict[str, str]
    multiple: dict[str, int] = field(default_factory=dict)
    kept: str = ""
    fixed: dict[str, int] = field(default_factory=dict)
    backends: tuple[str, ...] | None = None

    @property
    def letters(self):
        return sorted({c for axes in self.axes.values() for c in axes if c.isalpha()})


OPS: dict[str, SizedOp] = {}


def op(name, ours, stock, axes, **more):
    OPS[name] = SizedOp(name, ours, stock, axes, **more)


def modulated(y, scale=None, shift=None):
    y = y if scale is None else y * (1 + scale)
    return y if shift is None else y + shift


def rms(x, weight=None):
    return mx.fast.rms_norm(x, weight, EPS)


def layer(x, weight=None, bias=None):
    return mx.fast.layer_norm(x, weight, bias, EPS)


def l2(x):
    return x * mx.rsqrt((x * x).sum(-1, keepdims=True) + EPS)


STOCK = {"rms_norm": rms, "layer_norm": layer}
PARAMETERS = {"rms_norm": dict(weight="D"), "layer_norm": dict(weight="D", bias="D")}
MODULATIONS = {
    "": {},
    " scale BND": dict(scale="BND", shift="BND"),
    " scale B1D": dict(scale="B1D", shift="B1D"),
    " scale 1ND": dict(scale="1ND", shift="ND"),
    " scale D": dict(scale="D", shift="D"),
    " scale B1D, shift 1D": dict(scale="B1D", shift="1D"),
    " shift 1ND": dict(shift="1ND"),
    " scale ND": dict(scale="ND"),
}


def modulated_norm(norm):
    def f(x, weight=None, bias=None, scale=None, shift=None):
        given = {} if bias is None else dict(bias=bias)
        return modulated(norm(x, weight, **given), scale, shift)

    return f


def added(norm, multiplied=None):
    def f(
        x,
        residual,
        weight=None,
        bias=None,
        residual2=None,
        factor=None,
        scale=None,
        shift=None,
    ):
        factor = multiplied if factor is None else factor
        s = residual + (x if factor is None else x * factor)
        s = s if residual2 is None else s + residual2
        given = {} if bias is None else dict(bias=bias)
        return modulated(norm(s, weight, **given), scale, shift), s

    return f


def over_channels(of_rows, x, *parameters, activation=None, **named):
    y = of_rows(mx.moveaxis(x, 1, -1), *parameters, **named)
    return mx.moveaxis(ACTIVATIONS[activation](y), -1, 1)


for norm, of_rows in STOCK.items():
    ours, adding = getattr(mlx_norms, norm), getattr(mlx_norms, f"add_{norm}")
    for parameters in ({}, PARAMETERS[norm]):
        bare = "" if parameters else " bare"
        for text, modulation in MODULATIONS.items():
            op(
                norm + bare + text,
                partial(ours, eps=EPS),
                modulated_norm(of_rows),
                dict(x="BND") | parameters | modulation,
            )
        for text, factor in {"": {}, " scale B1D": MODULATIONS[" scale B1D"]}.items():
            op(
                f"add_{norm}{bare}{text}",
                partial(adding, eps=EPS),
                added(of_rows),
                dict(x="BND", residual="BND") | parameters | factor,
            )
    for axes in ("D", "B1D", "1ND", "BND"):
        op(
            f"add_{norm} factor {axes}",
            partial(adding, eps=EPS),
            added(of_rows),
            dict(x="BND", residual="BND", factor=axes) | PARAMETERS[norm],
        )
    op(
        f"add_{norm} factor 0.5",
        partial(adding, eps=EPS, factor=0.5),
        added(of_rows, 0.5),
        dict(x="BND", residual="BND") | PARAMETERS[norm],
    )
    op(
        f"add_{norm} residual2",
        partial(adding, eps=EPS),
        added(of_rows),
        dict(x="BND", residual="BND", residual2="BND") | PARAMETERS[norm],
    )
    op(f"{norm} of a vector", partial(ours, eps=EPS), of_rows, dict(x="D") | PARAMETERS[norm])

    for parameters in ({}, PARAMETERS[norm]):
        op(
            f"{norm} axis 1{'' if parameters else ' bare'}",
            partial(ours, eps=EPS, axis=1),
            partial(over_channels, of_rows),
            dict(x="BDN") | parameters,
        )

op(
    "rms_norm axis 1 silu",
    partial(mlx_norms.rms_norm, eps=EPS, axis=1, activation="silu"),
    partial(over_channels, rms, activation="silu"),
    dict(x="BDN", weight="D"),
)


def gated(x, weight=None, gate=None, activation=None, first=False, groups=1):
    by = None if gate is None else ACTIVATIONS[activation](gate)
    if first and gate is not None:
        x = x * by
    if groups > 1:
        y = mx.flatten(rms(mx.unflatten(x, -1, (groups, -1))), -2, -1)
        y = y if weight is None else y * weight
    else:
        y = rms(x, weight)
    if gate is None:
        return ACTIVATIONS[activation](y)
    return y if first else y * by


for activation, first, groups, gate in (
    *(("silu", False, 1, True), ("silu", True, 1, True), (None, False, 1, True)),
    *(
        ("sigmoid", False, 2, True),
        ("gelu", True, 2, True),
        ("silu", False, 1, False),
        ("relu2", True, 1, False),
    ),
    *((None, False, 2, False),),
):
    parts = [f" groups {groups}"] if groups > 1 else []
    parts += [" gate"] if gate else []
    parts += [f" {activation}"] if activation else []
    op(
        "rms_norm" + "".join(parts) + (" first" if first else ""),
        partial(
            mlx_norms.rms_norm,
            eps=EPS,
            activation=activation,
            norm_before_gate=not first,
            num_groups=groups,
        ),
        partial(gated, activation=activation, first=first, groups=groups),
        dict(x="BND", weight="D") | (dict(gate="BND") if gate else {}),
        multiple=dict(D=groups),
        kept="D" if groups > 1 else "",
    )

op("l2_norm", partial(mlx_norms.l2_norm, eps=EPS, eps_inside=True), l2, dict(x="BND"))
op(
    "l2_norm bounded",
    partial(mlx_norms.l2_norm, eps=EPS),
    lambda x: x / mx.maximum(mx.sqrt((x * x).sum(-1, keepdims=True)), EPS),
    dict(x="BND"),
)
op(
    "rms_norms",
    lambda x, z, weight: mlx_norms.rms_norms([x, z], [weight, None], EPS, scales=[0.3, 2.0]),
    lambda x, z, weight: [rms(x) * weight * 0.3, rms(z) * 2],
    dict(x="BLD", z="BKH", weight="D"),
)
op(
    "l2_norms",
    lambda x, z: mlx_norms.l2_norms([x, z], [0.3, 2.0], EPS, eps_inside=True),
    lambda x, z: [l2(x) * 0.3, l2(z) * 2],
    dict(x="BLD", z="BKD"),
)
op(
    "layer_norm by numbers",
    partial(mlx_norms.layer_norm, eps=EPS, scale=0.3, shift=0.1),
    lambda x, weight: modulated(layer(x, weight), 0.3, 0.1),
    dict(x="BLD", weight="D"),
)
for weight in ("D", "HD"):
    op(
        f"head_rms_norm {weight}",
        partial(mlx_norms.head_rms_norm, eps=EPS),
        lambda x, weight: rms(x) * weight,
        dict(x="BHD", weight=weight),
    )
    op(
        f"head_layer_norm {weight}",
        partial(mlx_norms.head_layer_norm, eps=EPS),
        lambda x, weight, bias: layer(x) * weight + bias,
        dict(x="BHD", weight=weight, bias="HD"),
    )
    op(
        f"qk_norm {weight}",
        partial(mlx_norms.qk_norm, eps=EPS),
        lambda q, k, q_weight, k_weight: [rms(q) * q_weight, rms(k) * k_weight],
        dict(q="BHD", k="BKD", q_weight=weight, k_weight=weight.replace("H", "K")),
    )


def roped(x, weight=1.0, offset=0, first=False):
    def rope(x):
        x = x.transpose(0, 2, 1, 3)
        return mx.fast.rope(x, 8, traditional=False, base=100.0, scale=1.0, offset=offset)

    return rms(rope(x)) * weight if first else rope(rms(x) * weight)


for first in (False, True):
    op(
        f"norm_rope{' first' if first else ''}",
        partial(mlx_norms.norm_rope, eps=EPS, dims=8, base=100.0, offset=3, rope_first=first),
        partial(roped, offset=3, first=first),
        dict(x="BLHD", weight="D"),
        fixed=dict(D=10),
    )
op(
    "qk_norm_rope",
    partial(mlx_norms.qk_norm_rope, eps=EPS, dims=8, base=100.0),
    lambda q, k, q_weight, k_weight, v: [
        roped(q, q_weight),
        roped(k, k_weight),
        rms(v).transpose(0, 2, 1, 3),
    ],
    dict(q="BLHD", k="BLKD", q_weight="D", k_weight="D", v="BLKD"),
    fixed=dict(D=10),
)


def norm_add_norm(x, residual, post_weight=None, weight=None, factor=1.0):
    h = residual + factor * rms(x, post_weight)
    return rms(h, weight), h


for parameters in (
    {},
    dict(post_weight="D", weight="D"),
    dict(post_weight="D", weight="D", factor="BND"),
):
    op(
        f"norm_add_norm {' '.join(parameters)}",
        partial(mlx_norms.norm_add_norm, eps=EPS),
        norm_add_norm,
        dict(x="BND", residual="BND") | parameters,
    )


def layered(layer, x, parameters):
    if parameters:
        layer.weight, layer.bias = parameters
    return layer(x)


def stock_group(x, *parameters, groups, compatible=False, activation=None, **named):
    parameters = parameters or tuple(named.values())
    c = x.shape[-1]
    layer = nn.GroupNorm(groups, c or groups, EPS, bool(parameters), compatible)
    return ACTIVATIONS[activation](layered(layer, x, parameters))


def stock_instance(x, **named):
    layer = nn.InstanceNorm(x.shape[-1], EPS, bool(named))
    return layered(layer, x, tuple(named.values()))


AFFINE = dict(weight="C", bias="C")
for compatible, activation, parameters in (
    *((False, None, AFFINE), (True, None, AFFINE), (False, "silu", AFFINE)),
    *((True, "gelu", AFFINE), (False, None, {}), (True, None, {})),
):
    op(
        "group_norm"
        + (" pytorch_compatible" if compatible else "")
        + (f" {activation}" if activation else "")
        + ("" if parameters else " bare"),
        partial(
            mlx_norms.group_norm,
            num_groups=2,
            eps=EPS,
            pytorch_compatible=compatible,
            activation=activation,
        ),
        partial(stock_group, groups=2, compatible=compatible, activation=activation),
        dict(x="BNC") | parameters,
        multiple=dict(C=2),
    )
for axes in ("BNC", "BNPC"):
    op(
        f"instance_norm {axes}",
        partial(mlx_norms.instance_norm, eps=EPS),
        stock_instance,
        dict(x=axes) | AFFINE,
    )
op("instance_norm bare", partial(mlx_norms.instance_norm, eps=EPS), stock_instance, dict(x="BNC"))


def stock_batch(x, weight=None, bias=None, mean=None, var=None, training=False):
    layer = nn.BatchNorm(x.shape[-1], EPS, affine=weight is not None)
    layer.train(training)
    if mean is None:
        layer.track_running_stats = False
    else:
        layer.running_mean, layer.running_var = mean, var * var
    if weight is not None:
        layer.weight, layer.bias = weight, bias
    y = layer(x)
    return [y, layer.running_mean, layer.running_var] if training and mean is not None else y


def our_batch(x, weight=None, bias=None, mean=None, var=None, training=False):
    var = None if var is None else var * var
    return mlx_norms.batch_norm(x, weight, bias, EPS, mean=mean, var=var, training=training)


for axes in ("BC", "BNC"):
    for text, statistics in {"": {}, " running": dict(mean="C", var="C")}.items():
        for training in (False, True):
            op(
                f"batch_norm {axes}{text}{' training' if training else ''}",
                partial(our_batch, training=training),
                partial(stock_batch, training=training),
                dict(x=axes) | AFFINE | statistics,
            )


def our_linear(norm, gated=False):
    def f(x, matrix, more=None, offset=None, norm_weight=None, norm_bias=None, residual=None):
        weights = matrix if more is None else [matrix, more]
        biases = offset if more is None or offset is None else [offset, None]
        given = [norm_weight] if norm == "rms_norm" else [norm_weight, norm_bias]
        options = dict(biases=biases, residual=residual, gated=gated)
        out = getattr(mlx_norms, f"{norm}_linear")(x, *given, weights, EPS, **options)
        return flat(out)

    return f


def flat(out):
    if isinstance(out, mx.array):
        return [out]
    return [a for part in out for a in flat(part)]


def stock_linear(norm, gated=False):
    def f(x, matrix, more=None, offset=None, norm_weight=None, norm_bias=None, residual=None):
        s = x if residual is None else x + residual
        n = rms(s, norm_weight) if norm == "rms_norm" else layer(s, norm_weight, norm_bias)
        y = n @ matrix.T if offset is None else mx.addmm(offset, n, matrix.T)
        out = [y] if more is None else [y, n @ more.T]
        if gated:
            out = [nn.silu(out[0]) * out[1]]
        return out if residual is None else [*out, s]

    return f


for norm, weights in (
    ("rms_norm", dict(norm_weight="D")),
    ("layer_norm", dict(norm_weight="D", norm_bias="D")),
):
    for text, axes, is_gated in (
        ("", dict(x="BND", matrix="MD"), False),
        (" two", dict(x="BND", matrix="MD", more="LD", offset="M", residual="BND"), False),
        (" gated", dict(x="BND", matrix="MD", more="MD"), True),
    ):
        op(
            f"{norm}_linear{text}",
            our_linear(norm, is_gated),
            stock_linear(norm, is_gated),
            axes | weights,
        )
for text, a, b in (("", "BNK", "KM"), (" batched", "BNK", "BKM"), (" of a vector", "K", "KM")):
    on_metal = ("metal", "metal-sim")
    op(f"matmul{text}", mlx_norms.matmul, lambda a, b: a @ b, dict(a=a, b=b), backends=on_metal)


def quantized():
    w = mx.sin(mx.arange(8 * 64, dtype=mx.float32)).reshape(8, 64)
    return mx.quantize(w, 32, 4)


def our_quantized(x, residual=None):
    return mlx_norms.quantized_matmul(x, *quantized(), group_size=32, bits=4, residual=residual)


def stock_quantized(x, residual=None):
    y = mx.quantized_matmul(x, *quantized(), group_size=32, bits=4)
    return y if residual is None else y + residual


for text, axes in {"": {}, " residual": dict(residual="BNM")}.items():
    op(
        f"quantized_matmul{text}",
        our_quantized,
        stock_quantized,
        dict(x="BNQ") | axes,
        fixed=dict(Q=64, M=8),
    )


def in_patch(f):
    def patched(*arguments, **named):
        with mlx_norms.patched():
            return f(*arguments, **named)

    return patched


for name in ("rms_norm", "layer_norm", "add_rms_norm", "add_layer_norm", "group_norm"):
    of = OPS[name]
    op(f"patched {name}", in_patch(of.stock), of.stock, of.axes, multiple=of.multiple)
for name in ("instance_norm BNC", "batch_norm BNC", "batch_norm BNC running training"):
    of = OPS[name]
    op(f"patched {name}", in_patch(of.stock), of.stock, of.axes)
