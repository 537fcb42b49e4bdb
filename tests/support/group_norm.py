"""Group, instance and batch norm: calls with options, and how far off they may be."""

import mlx.core as mx
import numpy as np

import mlx_norms
from mlx_norms._table import Op

from . import oracle
from .inputs import normal
from .oracle import Truth, unit_roundoff


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
        named = {"x": self.x} | self.parameters
        truth, *_ = oracle.truths(self.op_of(), named, [self.dtype])
        truth.check(y)

    def gradients(self, cotangent):
        """The truth of the gradients of x and the parameters."""
        with mx.stream(mx.cpu):
            found = self.op_of().gradients(self.arrays(), [cotangent])
            found = [(np.array(value), np.array(size)) for value, size in found]
        for name, a, (value, size) in zip(self.names, self.arrays(), found, strict=True):
            k = 15 if self.options.get("activation") else 24
            slack = k * unit_roundoff(mx.float32) * size
            yield Truth(value, slack, a.dtype, f"{self} gradient of {name}")

    @property
    def names(self):
        return ["x", *self.parameters]

    def op_of(self):
        """As an op of the table."""
        return Op(str(self), "", self.chain, dict.fromkeys(self.names, ""), dict(eps=self.eps))

    def chain(self, m, x, weight=None, bias=None, *, eps, **running):
        """The steps of the table; for batch norm's y alone."""
        of = self.options.get
        if self.op == "batch_norm":
            running |= dict(training=not self.running, momentum=0.1, eps=eps)
            y = m.batch(x, weight, bias, **running)
            return y[0] if isinstance(y, list) else y
        groups = of("num_groups", x.shape[-1])
        compatible = self.op == "instance_norm" or of("pytorch_compatible", False)
        y = m.group(x, weight, bias, groups=groups, compatible=compatible, eps=eps)
        return m.activated(of("activation"), y)


def parameters_of(channels, dtype, *, running=False, seed=0):
    """Arrays of each channel by name."""
    names = ("weight", "bias", "mean", "var") if running else ("weight", "bias")
    arrays = {n: normal((channels,), dtype, seed=(seed, n)) for n in names}
    if running:
        arrays["var"] = mx.square(arrays["var"]) + 0.5
    return arrays
