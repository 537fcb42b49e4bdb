"""Steps with norms of images: values of at least two axes, the last of which is the channels."""

import mlx.nn as nn

from .op_steps import divisors
from .program import kind
from .steps import EPS


def choose(draw, axes):
    """An image and perhaps numbers of a weight and a bias."""
    x = draw.value(lambda a: a.ndim >= axes and a.size > 0)
    return (x, *([draw.row_of(x), draw.row_of(x)] if draw.chance(0.6) else []))


@kind(2)
class image_layer:
    """mlx.nn's layers that patch() takes, and whose own norm is mx.fast's."""

    def choose(draw):
        form = draw.one_of(["GroupNorm", "InstanceNorm"])
        x, *parameters = choose(draw, 3 if form == "InstanceNorm" else 2)
        options = dict(form=form, eps=draw.one_of(EPS))
        if form == "GroupNorm":
            options["groups"] = draw.one_of(divisors(draw.values[x].shape[-1]))
        return (x, *parameters), options

    def run(context, x, *parameters, form, eps, groups=None):
        dims, affine = x.shape[-1], bool(parameters)
        if form == "GroupNorm":
            layer = nn.GroupNorm(groups, dims, eps, affine, pytorch_compatible=True)
        else:
            layer = nn.InstanceNorm(dims, eps, affine)
        if parameters:
            layer.weight, layer.bias = parameters
        return [layer(x)]
