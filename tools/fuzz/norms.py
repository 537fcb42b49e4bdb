"""The ops that a program calls: those of this package, or the same from mx.fast and mx.core."""

import itertools
import math

import mlx.core as mx

from mlx_norms._table import stock
from support.norm_case import result_type

from .jitter import in_order


class Ours:
    """The ops of the table."""

    @staticmethod
    def call(op, arrays, *, widens=False, **options):
        """The results; ``widens`` has them in the dtype that all arrays promote to."""
        more = dict(dtype=widest(*arrays)) if widens else {}
        return op.ours(**options, **more)(*arrays)


class Stock:
    """The same ops as a model computes them without this package."""

    @staticmethod
    def call(op, arrays, *, widens=False, **options):
        given = dict(zip(op.inputs, arrays, strict=True))
        rows = [a for name, a in given.items() if name in ("x", "q", "k", "z")]
        dtypes = [a.dtype for a in rows]
        added = [a.dtype for name, a in given.items() if name.startswith("residual")]
        steps = Steps([*itertools.accumulate(added, result_type, initial=rows[0].dtype)])
        if op.function == "norm_add_norm" and not op.options.get("weight_offset"):
            steps.first_norm = rows[0].dtype
        if op.adds:
            dtypes = [given["x"].dtype, steps.sums[-1]]
        if widens:
            dtypes[0] = widest(*arrays)
            dtypes[1:] = dtypes[1:] if op.adds else [dtypes[0]] * (len(dtypes) - 1)
        results = op.chain_of(steps, **options)(*arrays)
        return [a.astype(dtype) for a, dtype in zip(results, dtypes, strict=True)]


class Steps:
    """Those of the table's chains by mx.fast's norms, whose errors judge.py knows."""

    def __init__(self, sums):
        self.sums = sums  # dtypes: x's, and of x and of each that is added
        self.first_norm = None  # that to which an op rounds its first norm as it goes

    def total(self, x, *others, clamp=False):
        for other, dtype in zip(others, self.sums[1:], strict=True):
            if x.shape != other.shape:
                raise ValueError("residual must have x's shape")
            x = (x + other).astype(dtype)
        return stock.total(x, clamp=clamp)

    def rms(self, x, weight=None, *, eps):
        dtype, self.first_norm = self.first_norm, None
        if dtype and weight is not None:
            return (mx.fast.rms_norm(x, None, eps) * weight).astype(dtype)
        return mx.fast.rms_norm(x, weight, eps)

    layer, scaled, moved = map(staticmethod, (stock.layer, stock.scaled, stock.moved))
    shifted = staticmethod(stock.shifted)

    @staticmethod
    def activated(activation, a):
        return activated(activation, a)

    @staticmethod
    def group(x, *parameters, groups, compatible, eps):
        """In float32."""
        samples, channels = x.shape[0], x.shape[-1]
        each = channels // groups
        split, order = (
            ((groups, each), (0, 2, 1, 3)) if compatible else ((each, groups), (0, 3, 1, 2))
        )
        parts = x.astype(mx.float32).reshape(samples, -1, *split).transpose(order)
        y = mx.fast.layer_norm(parts.reshape(samples, groups, -1), None, None, eps)
        back = (0, 2, 1, 3) if compatible else (0, 2, 3, 1)
        y = y.reshape(parts.shape).transpose(back).reshape(x.shape)
        if parameters:
            weight, bias = parameters
            y = y * weight + bias
        return y

    def instance(self, x, *parameters, eps):
        return self.group(x, *parameters, groups=x.shape[-1], compatible=True, eps=eps)

    def batch(self, x, *parameters, eps, **options):
        one = x.reshape(1, -1, x.shape[-1])
        return self.instance(one, *parameters, eps=eps).reshape(x.shape)

    @staticmethod
    def unit(x, *, eps, eps_inside):
        v, dims = x.astype(mx.float32), x.shape[-1]
        if eps_inside:
            return (mx.fast.rms_norm(v, None, eps / dims) * dims**-0.5).astype(x.dtype)
        bounded = (v * v).sum(-1, keepdims=True) < eps * eps
        unit = mx.fast.rms_norm(mx.where(bounded, 1.0, v), None, 0.0) * dims**-0.5
        return mx.where(bounded, v / eps, unit).astype(x.dtype)


def of_all(i, out):
    result = out[i]
    for other in (*out[:i], *out[i + 1 :]):
        result = mx.where(mx.array(False), other.sum().astype(result.dtype), result)
    return result


class TiedStock:
    """The same, with the gradients that ops of ours with two results may have.

    One that is not used has zeros for a cotangent, which are NaN where what is before the op is not
    finite. Of MLX's two ops one would take no part.
    """

    @staticmethod
    def call(op, arrays, **options):
        out = Stock.call(op, arrays, **options)
        return [of_all(i, out) for i in range(len(out))]


def activated(activation, a):
    if activation == "gelu":
        return a * (1 + mx.erf(a / math.sqrt(2))) / 2
    if activation == "relu2":
        return mx.square(mx.maximum(a, 0))
    if activation is None:
        return a
    s = mx.sigmoid(a)
    return a * s if activation == "silu" else s


def widest(*arrays):
    """The dtype that the arrays promote to; None is ignored."""
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
