"""Group, instance and batch norm: calls with options, and the truth in float64."""

import math

import mlx.core as mx
import numpy as np

import mlx_norms

from .inputs import normal
from .oracle import Truth, exact, unit_roundoff

U = unit_roundoff(mx.float32)
erf = np.vectorize(math.erf, otypes=[np.float64])


def activated(activation, z):
    """a(z) and its derivative."""
    if activation == "silu":
        s = 1 / (1 + np.exp(-z))
        return z * s, s * (1 + z * (1 - s))
    if activation == "gelu":
        phi = np.exp(-z * z / 2) / math.sqrt(2 * math.pi)
        cdf = (1 + erf(z / math.sqrt(2))) / 2
        return z * cdf, cdf + z * phi
    return z, np.ones_like(z)


class GroupCase:
    """A call, of any of the three ops, on arrays by name."""

    def __init__(self, op, x, *, weight=None, bias=None, mean=None, var=None, **options):
        self.op, self.x = op, x
        self.parameters = {
            n: a
            for n, a in dict(weight=weight, bias=bias, mean=mean, var=var).items()
            if a is not None
        }
        self.options = options
        self.eps = options.get("eps", 1e-5)
        self.dtype = options.get("dtype") or x.dtype
        self.running = "mean" in self.parameters and not options.get("training")

    def __str__(self):
        names = ", ".join(f"{n} {a.dtype}" for n, a in self.parameters.items())
        return f"{self.op}({self.x.dtype}{list(self.x.shape)}, {names}, {self.options})"

    def arrays(self):
        return [self.x, *self.parameters.values()]

    def results(self, x, *parameters):
        """The op's results, as a list."""
        named = dict(zip(self.parameters, parameters, strict=True))
        if self.op == "batch_norm":
            named = dict.fromkeys(("weight", "bias", "mean", "var")) | named
        out = getattr(mlx_norms, self.op)(x, **named, **self.options)
        return list(out) if isinstance(out, tuple) else [out]

    def __call__(self, x, *parameters):
        return self.results(x, *parameters)[0]

    def grouped(self, a):
        """[samples, positions, groups, channels of each]"""
        c = a.shape[-1]
        n = 1 if self.op == "batch_norm" else a.shape[0]
        groups = self.options.get("num_groups", c)
        a = a.reshape(n, math.prod(a.shape[:-1]) // max(n, 1), c)
        if self.options.get("pytorch_compatible") or self.op != "group_norm":
            return a.reshape(*a.shape[:2], groups, c // groups)
        return a.reshape(*a.shape[:2], c // groups, groups).swapaxes(2, 3)

    def spread(self, a):
        """The inverse."""
        if self.op == "group_norm" and not self.options.get("pytorch_compatible"):
            a = a.swapaxes(2, 3)
        return a.reshape(self.x.shape)

    def parameter(self, name, default):
        return exact(self.parameters[name]) if name in self.parameters else default

    def statistics(self):
        """The mean and variance, which broadcast to what is in groups."""
        if self.running:
            shape = (1, 1, self.x.shape[-1], 1)
            return [self.parameter(n, None).reshape(shape) for n in ("mean", "var")]
        x = self.grouped(exact(self.x))
        mean = x.mean((1, 3), keepdims=True)
        return mean, ((x - mean) ** 2).mean((1, 3), keepdims=True)

    def normalized(self):
        mean, var = self.statistics()
        rstd = 1 / np.sqrt(var + self.eps)
        return self.spread((self.grouped(exact(self.x)) - mean) * rstd), rstd, mean

    def check(self, cotangent=None):
        """Checks results and gradients."""
        __tracebackhide__ = True
        cotangent = normal(self.x.shape, self.dtype, seed=9) if cotangent is None else cotangent
        (y,), gradients = mx.vjp(self, self.arrays(), [cotangent])
        self.check_result(y)
        for truth, got in zip(self.gradients(cotangent), gradients, strict=True):
            truth.check(got)

    def check_result(self, y):
        __tracebackhide__ = True
        n, rstd, mean = self.normalized()
        w, b = self.parameter("weight", 1.0), self.parameter("bias", 0.0)
        value, slope = activated(self.options.get("activation"), n * w + b)
        # A mean of 1e4 deviations is subtracted in two parts, or given in one.
        off = np.abs(mean) * rstd if self.running else 0.0
        size = (np.abs(n) + 1 + self.spread(off + 0 * self.grouped(n))) * np.abs(w) + np.abs(b)
        slack = 24 * U * (size * (1 + np.abs(slope)) + np.abs(value))
        Truth(value, slack, self.dtype, str(self)).check(y)

    def gradients(self, cotangent):
        """The truth of the gradients of x and the parameters."""
        n, rstd, _ = self.normalized()
        w, b = self.parameter("weight", 1.0), self.parameter("bias", 0.0)
        _, slope = activated(self.options.get("activation"), n * w + b)
        g = exact(cotangent) * slope
        # How far a slope may be off, in units of g.
        g_size = np.abs(exact(cotangent)) * (np.abs(slope) + (np.abs(n * w) + np.abs(b) + 1))
        wg, wg_size = self.grouped(g * w), self.grouped(g_size * np.abs(w))
        ng = self.grouped(n)
        if self.running:
            dx, size = wg * rstd, wg_size * rstd
        else:
            mean = lambda a: a.mean((1, 3), keepdims=True)  # noqa: E731
            dx = rstd * (wg - mean(wg) - ng * mean(wg * ng))
            size = rstd * (
                wg_size + mean(wg_size) + (np.abs(ng) + 1) * mean(wg_size * (np.abs(ng) + 1))
            )
        rows = tuple(range(self.x.ndim - 1))
        sum_g, sum_gn = g.sum(rows), (g * n).sum(rows)
        size_g, size_gn = g_size.sum(rows), (g_size * (np.abs(n) + 1)).sum(rows)
        values = {"weight": (sum_gn, size_gn), "bias": (sum_g, size_g)}
        if self.running:
            r = rstd.reshape(-1)
            values["mean"] = (-r * w * sum_g, r * np.abs(w) * size_g)
            values["var"] = (-0.5 * r * r * w * sum_gn, r * r * np.abs(w) * size_gn)
        yield Truth(self.spread(dx), 24 * U * self.spread(size), self.x.dtype, f"{self} dx")
        for name, a in self.parameters.items():
            value, size = values.get(name, (np.zeros(a.shape), 0.0))
            yield Truth(value, 24 * U * size, a.dtype, f"{self} gradient of {name}")


def parameters_of(channels, dtype, *, running=False, seed=0):
    """Arrays of each channel by name."""
    names = ("weight", "bias", "mean", "var") if running else ("weight", "bias")
    arrays = {n: normal((channels,), dtype, seed=(seed, n)) for n in names}
    if running:
        arrays["var"] = mx.square(arrays["var"]) + 0.5
    return arrays
