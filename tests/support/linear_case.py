"""One call of a norm with its projections, and its float64 truth.

The bounds are those of oracle.py: k * u * S, where S is the float64 sum of the absolute values of
the summed terms, through the norm and the projection, plus half an ulp of the output. In two steps,
the normalized row is rounded to its dtype, and MLX's matmul again before its bias or gate.
"""

import os
import re
from dataclasses import dataclass, field

import mlx.core as mx
import numpy as np

import mlx_norms
from mlx_norms._table.exact import result_type

from . import oracle
from .inputs import normal
from .norm_case import Norm, short
from .oracle import Truth, exact, underflow, unit_roundoff

OPS = ("rms_norm_linear", "layer_norm_linear")


@dataclass
class Quantized:
    """A weight quantized in MLX's affine mode."""

    parts: list[mx.array]
    bits: int
    group_size: int

    @property
    def shape(self):
        return self.parts[0].shape[0], self.parts[1].shape[1] * self.group_size

    def levels(self):
        """The stored integers, and the scale and bias of each, in float64."""
        w, scales, biases = self.parts
        one = mx.ones_like(scales, stream=mx.cpu).astype(mx.float32, stream=mx.cpu)
        q = exact(mx.dequantize(w, one, 0 * one, self.group_size, self.bits, stream=mx.cpu))
        return q, *(np.repeat(exact(a), self.group_size, axis=1) for a in (scales, biases))


@dataclass
class Case:
    """A call: its arrays by name, and its options."""

    op: str
    arrays: dict[str, mx.array]  # x, [residual], [norm_weight], [norm_bias]
    weights: list[mx.array | Quantized]
    biases: list[mx.array | None]
    options: dict = field(default_factory=dict)

    @property
    def gated(self):
        return self.options.get("gated", False)

    @property
    def adds(self):
        return "residual" in self.arrays

    @property
    def norm(self):
        name = self.op.removesuffix("_linear")
        options = {k: v for k, v in self.options.items() if k != "gated"}
        return Norm(f"add_{name}" if self.adds else name, rounding="late", **options)

    @property
    def norm_arrays(self):
        return {name.removeprefix("norm_"): a for name, a in self.arrays.items()}

    def flat(self):
        """All arrays, in the order that `of_flat` expects."""
        weights = [part for w in self.weights for part in parts_of(w)]
        return [*self.arrays.values(), *weights, *(b for b in self.biases if b is not None)]

    def of_flat(self, flat):
        """The same call with other arrays."""
        left = iter(flat)
        arrays = {name: next(left) for name in self.arrays}
        weights = []
        for w in self.weights:
            if isinstance(w, Quantized):
                weights.append(Quantized([next(left) for _ in range(3)], w.bits, w.group_size))
            else:
                weights.append(next(left))
        biases = [None if b is None else next(left) for b in self.biases]
        return Case(self.op, arrays, weights, biases, self.options)

    def __call__(self, *flat, stream=None):
        """The list of outputs, for these arrays in the order of `flat`, or for its own."""
        if flat:
            return self.of_flat(flat)(stream=stream)
        arguments = {"norm_weight": None, **self.arrays}
        if self.op == "layer_norm_linear":
            arguments = {"norm_bias": None, **arguments}
        weights = [w.parts if isinstance(w, Quantized) else w for w in self.weights]
        out = getattr(mlx_norms, self.op)(
            **arguments, weights=weights, biases=self.biases, **self.options, stream=stream
        )
        out, *rest = out if self.adds else [out]
        return [*([out] if self.gated else out), *rest]

    def two_steps(self, *flat, norm=None):
        """Our norm, then MLX's matmuls as mlx.nn calls them."""
        if flat:
            return self.of_flat(flat).two_steps(norm=norm)
        n, *rest = (norm or self.norm)(self.norm_arrays)
        out = [project(n, w, b) for w, b in zip(self.weights, self.biases, strict=True)]
        if self.gated:
            out = [out[0] * mx.sigmoid(out[0]) * out[1]]
        return [*out, *rest]

    def __str__(self):
        parts = [f"{k}:{short(a.dtype)}{list(a.shape)}" for k, a in self.arrays.items()]
        for w, b in zip(self.weights, self.biases, strict=True):
            kind = f"{w.bits}/{w.group_size}" if isinstance(w, Quantized) else short(w.dtype)
            parts.append(f"{kind}{list(w.shape)}{'' if b is None else '+b'}")
        return f"{self.op}({', '.join([*parts, str(self.options)])})"


def parts_of(weight):
    return weight.parts if isinstance(weight, Quantized) else [weight]


def project(x, weight, bias):
    if isinstance(weight, Quantized):
        y = mx.quantized_matmul(
            x, *weight.parts, transpose=True, group_size=weight.group_size, bits=weight.bits
        )
        return y if bias is None else y + bias
    return x @ weight.T if bias is None else mx.addmm(bias, x, weight.T)


def case(
    op,
    shape,
    widths,
    dtype,
    *,
    kinds=(None,),
    biases=(False,),
    residual=False,
    others=None,
    without=(),
    mean=0.0,
    std=1.0,
    seed=0,
    **options,
):
    """A call with x of ``shape`` and a projection to each of ``widths``.

    ``kinds`` and ``biases`` are repeated over the projections; a kind is (bits, group size), or
    None for an array. ``others`` are dtypes other than ``dtype``, by name.
    """
    dtypes = {
        n: (others or {}).get(n, dtype)
        for n in ("x", "residual", "norm_weight", "norm_bias", "weight", "bias")
    }
    names = ["x", *(["residual"] if residual else []), "norm_weight"]
    names += ["norm_bias"] if op == "layer_norm_linear" else []
    arrays = {}
    for i, name in enumerate(name for name in names if name not in without):
        row = name.startswith("norm")
        spread = {} if row else dict(mean=mean, std=std)
        arrays[name] = normal(
            shape[-1:] if row else shape, dtypes[name], seed=(seed, i, shape), **spread
        )
    weights, added = [], []
    for i, width in enumerate(widths):
        w = normal((width, shape[-1]), dtypes["weight"], seed=(seed, "w", i, width))
        if kind := kinds[i % len(kinds)]:
            bits, group = kind
            parts = mx.quantize(w, group, bits, stream=mx.cpu)
            w = Quantized(list(parts), bits, group)
        weights.append(w)
        bias = normal((width,), dtypes["bias"], seed=(seed, "b", i, width))
        added.append(bias if biases[i % len(biases)] else None)
    return Case(op, arrays, weights, added, options)


def matrix(weight):
    """The values of a weight, and the magnitudes of the terms that they are sums of."""
    if isinstance(weight, Quantized):
        q, scale, bias = weight.levels()
        return q * scale + bias, np.abs(q * scale) + np.abs(bias)
    w = exact(weight)
    return w, np.abs(w)


@dataclass
class Sum:
    """Values in float64, and how far off they may be before rounding."""

    value: np.ndarray
    slack: np.ndarray
    dtype: mx.Dtype


def metal_rows():
    """The most rows of a product on Metal, by the GPU's generation, which hostmetal is told."""
    generation = os.environ.get("HOSTMETAL_GENERATION", "13")
    if mx.metal.is_available():
        generation = re.search(r"_g(\d+)", mx.device_info()["architecture"])[1]
    return 8 if int(generation) < 15 else 4


def most_rows(kind):
    """The most rows of one launch, beyond which two steps are faster."""
    if mx.cuda.is_available():
        return 4 if kind is None else 8
    return metal_rows()


def is_apart_on_metal(op, kind):
    """Whether a norm and products of few rows are several launches there."""
    return op == "layer_norm_linear" and kind is not None


def truths(case, one_launch):
    """The truth of each output, for one launch or for two steps."""
    norm, arrays = case.norm, case.norm_arrays
    normalized, *sums = oracle.forward(norm, arrays)
    k = oracle.arithmetic(norm, {})
    size = normalized.size
    rounded = normalized.dtype
    projected = []
    for weight, bias in zip(case.weights, case.biases, strict=True):
        w, w_size = matrix(weight)
        dtype = out_dtype(rounded, weight, bias)
        value, sizes = normalized.value @ w.T, size @ w_size.T
        if bias is not None:
            value = value + exact(bias)
            sizes = sizes + np.abs(exact(bias))
        slack = k * sizes
        if not one_launch:
            slack = slack + unit_roundoff(rounded) * sizes + underflow(rounded) * w_size.sum(1)
            # The matmul; on the CPU, that of quantized weights accumulates in its own dtype.
            terms = w.shape[1] + 2 if isinstance(weight, Quantized) and dtype != mx.float32 else 1
            slack = slack + terms * unit_roundoff(dtype) * sizes
        projected.append(Sum(value, slack, dtype))
    if case.gated:
        projected = [gate(*projected, one_launch)]
    return [*(Truth(p.value, p.slack, p.dtype, str(case)) for p in projected), *sums]


def gate(a, b, one_launch):
    """silu(a) * b, and the slack that results."""
    dtype = result_type(a.dtype, b.dtype)
    silu = a.value / (1 + np.exp(-a.value))
    value = silu * b.value
    # The derivative of silu is at most 1.1 in magnitude.
    slack = 1.1 * a.slack * (np.abs(b.value) + b.slack) + np.abs(silu) * b.slack
    slack += 8 * unit_roundoff(mx.float32) * np.abs(value)
    if not one_launch:
        # a, b, the sigmoid and the result are rounded.
        slack += 5 * unit_roundoff(dtype) * np.abs(value) + 1.1 * underflow(dtype)
        slack += 1.1 * unit_roundoff(dtype) * np.abs(a.value * b.value)
    return Sum(value, slack, dtype)


def out_dtype(normalized, weight, bias):
    """The output's dtype, as MLX's matmul promotes."""
    dtype = normalized
    for part in parts_of(weight):
        if part.dtype != mx.uint32:
            dtype = result_type(dtype, part.dtype)
    return dtype if bias is None else result_type(dtype, bias.dtype)
