"""One call of a norm: which op, with which options."""

import functools
from dataclasses import dataclass

import mlx.core as mx

import mlx_norms
from mlx_norms._table.exact import result_type

OPS = ("rms_norm", "layer_norm", "add_rms_norm", "add_layer_norm")
DTYPES = (mx.float32, mx.float16, mx.bfloat16)


@dataclass(frozen=True)
class Norm:
    op: str
    eps: float = 1e-5
    weight_offset: float = 0.0
    clamp: bool = False
    rounding: str | None = None
    dtype: mx.Dtype | None = None
    eps_inside: bool = False  # of l2_norm
    factor: float | None = None  # of x before it is added; an array is among the arrays
    activation: str | None = None  # of rms_norm, as are the next two
    norm_before_gate: bool = True
    num_groups: int = 1
    rung: str | None = None  # of layer_norm's ladder, whose only option is eps

    @property
    def layer(self):
        return "layer" in self.op

    @property
    def l2(self):
        return self.op == "l2_norm"

    @property
    def adds(self):
        return self.op.startswith("add_")

    @property
    def arguments(self):
        """The names of the array arguments, in order."""
        if self.l2:
            return ("x",)
        names = ("x", "residual", "weight", "bias")
        return tuple(
            n for n in names if (self.adds or n != "residual") and (self.layer or n != "bias")
        )

    @property
    def options(self):
        if self.rung:
            return dict(eps=self.eps, rung=self.rung)
        if self.l2:
            return dict(eps=self.eps, eps_inside=self.eps_inside, dtype=self.dtype)
        options = dict(eps=self.eps, weight_offset=self.weight_offset, rounding=self.rounding)
        options["dtype"] = self.dtype
        if self.op == "rms_norm":
            gated = dict(activation=self.activation, norm_before_gate=self.norm_before_gate)
            options |= gated | dict(num_groups=self.num_groups)
        if self.adds:
            options["clamp"] = self.clamp
            if self.factor is not None:
                options["factor"] = self.factor
        return options

    def __call__(self, arrays, stream=None):
        """Call the op on a dict of arrays; returns a list of its one or two outputs."""
        arrays = dict(arrays) if self.l2 else {"weight": None, **arrays}
        ops = mlx_norms.ladders if self.rung else mlx_norms
        out = getattr(ops, self.op)(**arrays, **self.options, stream=stream)
        return list(out) if self.adds else [out]

    def vjp(self, arrays, cotangents):
        """The outputs, and the gradient of each array, in order."""
        return mx.vjp(self.function(list(arrays)), list(arrays.values()), list(cotangents))

    def function(self, names):
        """The op as a function of the arrays ``names``, in order, for MLX's transforms."""
        return lambda *arrays: self(dict(zip(names, arrays, strict=True)))

    def sum_dtype(self, arrays):
        return functools.reduce(result_type, (a.dtype for a in addends(arrays).values()))

    def out_dtype(self, arrays):
        return self.dtype or arrays["x"].dtype

    @property
    def is_early(self):
        late = self.weight_offset or self.rung
        return (self.rounding or ("late" if late else "early")) == "early"

    def casts_early(self, arrays):
        """Whether the normalized value is rounded to less than float32 before the weight."""
        names = ("weight", "bias", "scale", "shift")
        scaled = any(arrays.get(name) is not None for name in names)
        return self.is_early and scaled and self.out_dtype(arrays) != mx.float32


def addends(arrays):
    """What is added up, in this order: x, and what are residuals by their names."""
    return {n: a for n, a in arrays.items() if n == "x" or n.startswith("residual")}


def short(dtype):
    return {mx.float32: "f32", mx.float16: "f16", mx.bfloat16: "bf16"}[dtype]


def describe(norm, arrays):
    """The config, for a message: op, shapes, dtypes and the options that are set."""
    parts = [f"{k}:{short(a.dtype)}{list(a.shape)}" for k, a in arrays.items() if a is not None]
    defaults = Norm(norm.op).options
    # Not !=, since a Dtype cannot be compared with None.
    parts += [f"{k}={v}" for k, v in norm.options.items() if repr(v) != repr(defaults.get(k))]
    return f"{norm.op}({', '.join(parts)})"
