"""Steps with layers: matmuls that read a norm, as projections=True looks for them."""

import mlx.core as mx
import mlx.nn as nn

from .program import kind
from .steps import choose_norm, norm_of


def fitting(draw, x, *, outputs=None):
    """Numbers of the layers that accept x."""
    dims = draw.values[x].shape[-1]
    return [
        i
        for i, layer in enumerate(draw.context.layers)
        if layer.weight.shape[0] == (outputs or layer.weight.shape[0]) and dims_of(layer) == dims
    ]


def dims_of(layer):
    if isinstance(layer, nn.QuantizedLinear):
        return layer.scales.shape[1] * layer.group_size
    return layer.weight.shape[1]


@kind(2)
class linear:
    def choose(draw):
        x = draw.rows()
        return (x,), dict(layer=draw.one_of(fitting(draw, x)))

    def run(context, x, layer):
        return [context.layers[layer](x)]


@kind(4)
class projections:
    """A norm, perhaps with a residual add, and one to five layers that read it; it may be held."""

    def choose(draw):
        x = draw.rows()
        parameters, options = choose_norm(draw, x)
        layers = fitting(draw, x)
        added = [draw.like(x)] if draw.chance(0.6) else []
        chosen = tuple(draw.one_of(layers) for _ in range(draw.integer(1, 5)))
        options |= dict(layers=chosen, adds=bool(added), held=draw.chance(0.2))
        return (x, *added, *parameters), options

    def run(context, x, *parameters, layers, adds, held, **options):
        sums = []
        if adds:
            r, *parameters = parameters
            x = x + r
            sums = [x]
        n = norm_of(x, parameters, **options)
        return [*(context.layers[i](n) for i in layers), *sums, *([n] if held else [])]


def swiglu(gate, up):
    return nn.silu(gate) * up


@kind(2)
class gated:
    """A SwiGLU of two layers that read one norm."""

    def choose(draw):
        x = draw.rows()
        parameters, options = choose_norm(draw, x)
        gate = draw.one_of(fitting(draw, x))
        up = draw.one_of(fitting(draw, x, outputs=draw.context.layers[gate].weight.shape[0]))
        return (x, *parameters), options | dict(gate=gate, up=up)

    def run(context, x, *parameters, gate, up, **options):
        n = norm_of(x, parameters, **options)
        g, u = context.layers[gate](n), context.layers[up](n)
        return [g * mx.sigmoid(g) * u]


@kind(0.3)
class compiled_gated(gated):
    """The same as mlx_lm writes it: if mx.compile fuses, the gate is one kernel."""

    def run(context, x, *parameters, gate, up, **options):
        n = norm_of(x, parameters, **options)
        return [mx.compile(swiglu)(context.layers[gate](n), context.layers[up](n))]
