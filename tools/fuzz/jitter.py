"""MLX's norms with errors as large as a correct norm may have: how far do they change results?"""

import itertools

import mlx.core as mx
import numpy as np

from support.oracle import unit_roundoff

# Errors of the input in float32, and of the output and the gradient: those of the sums that a norm
# computes, and three roundings to 16 bits in each of two norms.
INPUT = 4 * unit_roundoff(mx.float32)
ARITHMETIC = 32 * unit_roundoff(mx.float32)
ROUNDINGS = 6


def jittered(norm, seed, times=1):
    """A norm of mx.fast with errors of random signs, ``times`` as large as a correct norm's."""
    calls = itertools.count()

    def jitter(x, *arguments, **options):
        dtype = norm(x, *arguments, **options).dtype  # or MLX's exception, as MLX words it
        arguments = in_order(arguments, options)
        weight, *bias, eps = [wide(a) for a in arguments]
        amount = ARITHMETIC
        if dtype != mx.float32:
            amount += ROUNDINGS * unit_roundoff(dtype)
        if weight is not None and arguments[0].dtype != mx.float32:
            amount += unit_roundoff(arguments[0].dtype)  # a weight 1 + w may or may not be rounded
        x = wide(x)
        signs = Signs(x, [seed, next(calls)])
        amount *= times
        y = norm(x * (1 + times * INPUT * signs()), weight, *bias, eps)
        y = y * (1 + amount * signs())
        size = mx.array(1.0) if weight is None else mx.abs(weight)
        y = y + amount * signs() * of_no_value(x, size * slope(x, eps, bias))
        if bias:  # the terms of a layer norm may cancel, and its mean is rounded
            y = y + times * INPUT * signs() * mx.stop_gradient(
                size * largest(x) * slope(x, eps, bias)
            )
            size = size if bias[0] is None else size + mx.abs(bias[0])
            y = y + amount * signs() * mx.stop_gradient(size)
            y = y * of_squares(x)
        return y.astype(dtype)

    return jitter


def in_order(arguments, options):
    """The arguments of a norm after x, some of which may be in ``options`` by name."""
    return (*arguments, *(options[n] for n in ("weight", "bias", "eps") if n in options))


class Signs:
    """Random signs for each element of x, from a hash of its row; x may have any number of rows."""

    def __init__(self, x, seed):
        self.x = mx.stop_gradient(x)
        self.rng = np.random.default_rng(seed)

    def __call__(self):
        phases = mx.array(self.rng.uniform(0, 6.28, self.x.shape[-1]).astype(np.float32))
        return mx.where(mx.sin(self.x * 12345.0 + phases) > 0, 1.0, -1.0)


def slope(x, eps, bias):
    """The reciprocal root that a norm of x multiplies by."""
    if bias:
        x = x - x.mean(-1, keepdims=True)
    return mx.rsqrt((x * x).mean(-1, keepdims=True) + eps)


def largest(x):
    return mx.abs(x).max(-1, keepdims=True) if x.size else x


def of_squares(x):
    """One or, where a row's squared deviations overflow and ours are NaN while MLX's are 0, NaN."""
    d = mx.stop_gradient(x - x.mean(-1, keepdims=True))
    return mx.where(mx.isfinite((d * d).sum(-1, keepdims=True)), 1.0, float("nan"))


def of_no_value(x, gradient):
    """Zero, with this gradient: terms of a gradient may cancel, but their errors do not.

    The gradient has gradients of its own, whose terms may cancel, too.
    """
    return (x - mx.stop_gradient(x)) * gradient


def wide(a):
    return a.astype(mx.float32) if isinstance(a, mx.array) else a
