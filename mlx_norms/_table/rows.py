"""Norms of rows, of columns and of heads."""

from __future__ import annotations

import itertools
from functools import partial

import mlx.core as mx

import mlx_norms

from .op import op

ROWS = dict(x="BND")
SUMS = ROWS | dict(residual="BND")
PARAMETERS = {"rms": dict(weight="D"), "layer": dict(weight="D", bias="D")}
ACTIVATIONS = ("silu", "sigmoid", "gelu", "relu2")
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


def norm(m, x, weight=None, bias=None, *, of, eps, scale=None, shift=None, **options):
    """``of`` is rms or layer; the options are a weight's, those of gates and groups, an axis."""
    offset = options.get("weight_offset", 0.0)
    weight = weight if not offset else m.shifted(weight, offset)
    if "axis" in options:
        x = m.moved(lambda a: mx.moveaxis(a, options["axis"], -1), x)
    parameters = [weight] if of == "rms" else [weight, bias]
    y = getattr(m, of)(x, *parameters, eps=eps)
    y = y if scale is None else y * (1 + scale)
    y = y if shift is None else y + shift
    y = m.activated(options.get("activation"), y)
    if "axis" in options:
        y = m.moved(lambda a: mx.moveaxis(a, -1, options["axis"]), y)
    return y


def of_weighted(m, x, weight=None, input_weight=None, **options):
    return norm(m, x * input_weight, weight, of="rms", **options)


def gated(m, x, weight=None, gate=None, *, activation, norm_before_gate, num_groups, eps, **more):
    offset = more.get("weight_offset", 0.0)
    weight = weight if not offset else m.shifted(weight, offset)
    by = None if gate is None else m.activated(activation, gate)
    first = gate is not None and not norm_before_gate
    x = x * by if first else x
    if num_groups > 1:
        groups = m.moved(lambda a: mx.unflatten(a, -1, (num_groups, -1)), x)
        y = m.moved(lambda a: mx.flatten(a, -2, -1), m.rms(groups, eps=eps))
        y = y if weight is None else y * weight
    else:
        y = m.rms(x, weight, eps=eps)
    if gate is None:
        return m.activated(activation, y)
    return y if first else y * by


def add_norm(m, x, residual, *parameters, residual2=None, factor=None, **named):
    x = x if factor is None else m.scaled(x, factor)
    others = () if residual2 is None else (residual2,)
    s = m.total(residual, x, *others, clamp=named.get("clamp", False))
    return norm(m, s, *parameters, **named), s


def norm_add_norm(
    m, x, residual, post_weight=None, weight=None, factor=None, alpha=None, **options
):
    of = partial(norm, m, of="rms", **options)
    n = of(x, post_weight)
    n = n if factor is None else m.scaled(n, factor)
    r = residual if alpha is None else m.scaled(residual, alpha)
    h = m.total(r, n, clamp=options.get("clamp", False))
    return of(h, weight), h


for of, parameters in PARAMETERS.items():
    name, add = f"{of}_norm", f"add_{of}_norm"
    alone, added = partial(norm, of=of), partial(add_norm, of=of)
    for given in ({}, parameters):
        bare = "" if given else " bare"
        for text, modulation in MODULATIONS.items():
            op(name + bare + text, name, alone, ROWS | given | modulation)
        for text in ("", " scale B1D"):
            op(add + bare + text, add, added, SUMS | given | MODULATIONS[text])
        op(f"{name} axis 1{bare}", name, alone, dict(x="BDN") | given, options=dict(axis=1))
    for axes in ("D", "B1D", "1ND", "BND"):
        op(f"{add} factor {axes}", add, added, SUMS | dict(factor=axes) | parameters)
    gates = dict(factor="B1D") | MODULATIONS[" scale B1D"]
    op(f"{add} bare factor B1D scale B1D", add, added, SUMS | gates)
    op(f"{add} factor 0.5", add, added, SUMS | parameters, options=dict(factor=0.5))
    op(f"{add} clamp", add, added, SUMS | parameters, options=dict(clamp=True))
    op(f"{add} residual2", add, added, SUMS | dict(residual2="BND") | parameters)
    op(f"{add} bare residual2 factor", add, added, SUMS | dict(residual2="BND") | gates)
    op(f"{name} of a vector", name, alone, dict(x="D") | parameters)
    offset = dict(weight_offset=1.0)
    op(f"{name} weight_offset", name, alone, ROWS | parameters, options=offset)

for text, given in {"": PARAMETERS["rms"], " bare": {}}.items():
    axes = ROWS | given | dict(input_weight="D")
    op("rms_norm input_weight" + text, "rms_norm", of_weighted, axes)

GATES = (
    *itertools.product((None, *ACTIVATIONS), (False, True), (1,), (True,)),
    *(("sigmoid", False, 2, True), ("gelu", True, 2, True), (None, False, 2, False)),
    *(("silu", False, 1, False), ("gelu", False, 1, False), ("relu2", True, 1, False)),
    ("sigmoid", False, 1, False),
)
for given, (activation, first, groups, gate) in itertools.product((dict(weight="D"), {}), GATES):
    parts = [] if given else [" bare"]
    parts += [f" groups {groups}"] if groups > 1 else []
    parts += [" gate"] * gate + [f" {activation}"] * bool(activation) + [" first"] * first
    op(
        "rms_norm" + "".join(parts),
        "rms_norm",
        gated,
        dict(x="BND") | given | (dict(gate="BND") if gate else {}),
        options=dict(activation=activation, norm_before_gate=not first, num_groups=groups),
        multiple=dict(D=groups),
        kept="D" if groups > 1 else "",
    )
for name, text, axes, options in (
    *(("rms_norm", f"axis 1 {a}", "BDN", dict(axis=1, activation=a)) for a in ACTIVATIONS),
    ("layer_norm", "axis 1 gelu", "BDN", dict(axis=1, activation="gelu")),
    *(("layer_norm", a, "BND", dict(activation=a)) for a in ACTIVATIONS),
):
    of = name.split("_")[0]
    op(f"{name} {text}", name, partial(norm, of=of), dict(x=axes) | PARAMETERS[of], options=options)
op(
    "layer_norm by numbers",
    "layer_norm",
    partial(norm, of="layer"),
    dict(x="BLD", weight="D"),
    options=dict(scale=0.3, shift=0.1),
)


def unit(m, x, **options):
    return m.unit(x, **options)


for text, inside in {"l2_norm": True, "l2_norm bounded": False}.items():
    op(text, "l2_norm", unit, ROWS, options=dict(eps_inside=inside))
POST = dict(post_weight="D", weight="D")
for text, given in {"": POST, " bare": {}}.items():
    op("norm_add_norm" + text, "norm_add_norm", norm_add_norm, SUMS | given)
for axes in ("D", "B1D", "BND"):
    factored = SUMS | POST | dict(factor=axes)
    op(f"norm_add_norm factor {axes}", "norm_add_norm", norm_add_norm, factored)
for text, axes in {"": {}, " factor D": dict(factor="D")}.items():
    named, given = f"norm_add_norm{text} alpha", SUMS | POST | axes
    op(named, "norm_add_norm", norm_add_norm, given, options=dict(alpha=-0.7))
op(
    "norm_add_norm weight_offset",
    "norm_add_norm",
    norm_add_norm,
    SUMS | POST,
    options=dict(weight_offset=1.0),
)


def ours_of_two(x, z, weight=None, *, norms, **options):
    weights = () if weight is None else ([weight, None],)
    return getattr(mlx_norms, norms)([x, z], *weights, **options)


def two(m, x, z, weight=None, *, norms, multipliers, **options):
    if norms == "l2_norms":
        results = [m.unit(a, **options) for a in (x, z)]
    else:
        results = [m.rms(x, weight, **options), m.rms(z, **options)]
    return [y * by for y, by in zip(results, multipliers, strict=True)]


for name, given, more in (
    ("rms_norms", dict(weight="D"), {}),
    ("l2_norms", {}, dict(eps_inside=True)),
):
    options = dict(norms=name, multipliers=[0.5, 2.0]) | more
    op(name, ours_of_two, two, dict(x="BLD", z="BKD") | given, options=options)


def of_heads(m, x, weight=None, bias=None, residual=None, *, of, eps, **after):
    s = x if residual is None else m.total(residual, x)
    offset = after.get("weight_offset", 0.0)
    weight = weight if not offset else m.shifted(weight, offset)
    y = getattr(m, of)(s, eps=eps)
    y = y if weight is None else y * weight
    y = y if bias is None else y + bias
    y = y if "scale" not in after else y * (1 + after["scale"])
    y = y if "shift" not in after else y + after["shift"]
    y = y if "gate" not in after else y * m.activated(after["activation"], after["gate"])
    return y if residual is None else (y, s)


def ours_of_two_heads(q, k, q_weight=None, k_weight=None, **options):
    return mlx_norms.rms_norms([q, k], [q_weight, k_weight], **options)


def of_two_heads(m, q, k, q_weight=None, k_weight=None, *, eps):
    """A weight of all heads is that of one norm, as models have it."""
    return [
        of_heads(m, x, w, of="rms", eps=eps) if w is None or w.ndim > 1 else m.rms(x, w, eps=eps)
        for x, w in ((q, q_weight), (k, k_weight))
    ]


HEADS, BIASED = dict(x="BHD", weight="HD"), dict(bias="HD")
for name, text, axes, options in (
    ("rms_norm", "HD", HEADS, {}),
    ("rms_norm", "HD scale B1D", HEADS | dict(scale="B1D"), {}),
    ("rms_norm", "HD gate silu", HEADS | dict(gate="BHD"), dict(activation="silu")),
    ("layer_norm", "HD", HEADS | BIASED, {}),
    ("layer_norm", "D", HEADS | BIASED | dict(weight="D"), {}),
    ("layer_norm", "D scale B1D", HEADS | BIASED | dict(weight="D", scale="B1D"), {}),
    ("layer_norm", "D shift D", HEADS | BIASED | dict(weight="D", shift="D"), {}),
    ("layer_norm", "HD scale D", HEADS | BIASED | dict(scale="D"), {}),
    ("add_rms_norm", "HD", HEADS | dict(residual="BHD"), {}),
    ("add_layer_norm", "HD", HEADS | BIASED | dict(residual="BHD"), {}),
):
    of = "rms" if "rms" in name else "layer"
    op(f"{name} heads {text}", name, partial(of_heads, of=of), axes, options=options)
for text, weights in {
    "HD": dict(q_weight="HD", k_weight="KD"),
    "HD and D": dict(q_weight="HD", k_weight="D"),
    "bare": {},
}.items():
    axes = dict(q="BHD", k="BKD") | weights
    op(f"rms_norms heads {text}", ours_of_two_heads, of_two_heads, axes)


def heads_first(m, x, layout):
    return x if layout == "BHLD" else m.moved(lambda a: a.transpose(0, 2, 1, 3), x)


def roped(m, x, weight=None, *, eps, dims, layout, rope_first=False, **options):
    def rotated(x):
        return m.rope(heads_first(m, x, layout), dims, **options)

    if rope_first:
        return m.rms(rotated(x), weight, eps=eps)
    return rotated(m.rms(x, weight, eps=eps))


def qk_roped(m, q, k, q_weight, k_weight, v, *, eps, layout, q_multiplier=None, **options):
    rows = heads_first(m, m.rms(v, eps=eps), layout)
    of = partial(roped, m, eps=eps, layout=layout, **options)
    y = of(q, q_weight)
    return [y if q_multiplier is None else y * q_multiplier, of(k, k_weight), rows]


ANGLES, OF_10 = dict(dims=8, base=100.0, offset=3, layout="BLHD"), dict(D=10)
for text, more in {
    "": {},
    " first": dict(rope_first=True),
    " traditional": dict(traditional=True),
    " BHLD": dict(layout="BHLD"),
}.items():
    axes = dict(x=more.get("layout", "BLHD"), weight="D")
    op(f"norm_rope{text}", "norm_rope", roped, axes, options=ANGLES | more, fixed=OF_10)
for text, more in {"": {}, " traditional": dict(traditional=True, q_multiplier=0.5)}.items():
    axes = dict(q="BLHD", k="BLKD", q_weight="D", k_weight="D", v="BLKD")
    op(
        f"qk_norm_rope{text}",
        "qk_norm_rope",
        qk_roped,
        axes,
        options=ANGLES | more,
        fixed=dict(D=10),
    )
