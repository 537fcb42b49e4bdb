"""The float64 truth of gated norms: see oracle.py, whose bounds these are.

``size`` stands for what float32's errors are relative to: an activation's are not relative to its
value, which 1 - y and 1 + erf(z) make small by cancellation.
"""

import math

import mlx.core as mx
import numpy as np

from . import oracle
from .norm_case import describe

K = 16  # of float32
STEPS = 6  # roundings of an activation to its gate's dtype


def erf(z):
    return np.vectorize(math.erf, otypes=[np.float64])(z)


def sigmoid(z):
    return 0.5 * (1.0 + np.tanh(0.5 * z))


def activation(name, z):
    """Its value and size."""
    if name is None:
        return z, np.abs(z)
    if name == "gelu":
        e = erf(z / math.sqrt(2.0))
        return 0.5 * z * (1.0 + e), np.abs(z) * (1.0 + np.abs(e))
    if name == "relu2":
        return np.maximum(z, 0.0) ** 2, z * z
    s = sigmoid(z)
    size = s * (1.0 + np.abs(z)) + (z > 0)
    return (s, size) if name == "sigmoid" else (z * s, np.abs(z) * size)


def overflow(name, z, dtype):
    """What a sigmoid whose steps are float16 loses where the exponential overflows."""
    if dtype != mx.float16 or name not in ("sigmoid", "silu"):
        return 0.0
    lost = np.where(np.abs(z) > 11.0, sigmoid(-np.abs(z)), 0.0)
    return lost if name == "sigmoid" else np.abs(z) * lost


def slope(name, z):
    """The derivative and its size."""
    if name is None:
        return np.ones_like(z), np.ones_like(z)
    if name == "gelu":
        e = erf(z / math.sqrt(2.0))
        density = np.exp(-0.5 * z * z) / math.sqrt(2.0 * math.pi)
        size = 0.5 * (1.0 + np.abs(e)) + np.abs(z) * density * (1.0 + z * z)
        return 0.5 * (1.0 + e) + z * density, size
    if name == "relu2":
        return 2.0 * np.maximum(z, 0.0), 2.0 * np.abs(z)
    s = sigmoid(z)
    of, size = s * (1.0 - s), s * (1.0 + np.abs(z))
    return (of, size) if name == "sigmoid" else (s + z * of, size * (1.0 + np.abs(z)))


def is_gated(norm, arrays):
    return arrays.get("gate") is not None or norm.activation is not None or norm.num_groups != 1


class Parts:
    """The arrays in float64, a group of elements to a row, and what is normalized of them."""

    def __init__(self, norm, arrays):
        self.shape = arrays["x"].shape
        groups = (norm.num_groups, self.shape[-1] // norm.num_groups)

        def split(name):
            a = arrays.get(name)
            return None if a is None else oracle.exact(a).reshape(*a.shape[:-1], *groups)

        self.x, self.gate = split("x"), split("gate")
        self.w = 1.0
        if arrays.get("weight") is not None:
            self.w = split("weight") + norm.weight_offset
        self.first = self.gate is not None and not norm.norm_before_gate
        self.s, self.s_size = self.x, np.abs(self.x)
        if self.gate is not None:
            self.a, self.a_size = activation(norm.activation, self.gate)
            self.slope, self.slope_size = slope(norm.activation, self.gate)
        if self.first:
            self.s, self.s_size = self.x * self.a, self.s_size * self.a_size
        self.n, self.rstd = oracle.statistics(norm, self.s)

    def whole(self, a):
        return np.broadcast_to(a, self.x.shape).reshape(self.shape)


def rms(a):
    return np.sqrt((a * a).mean(-1, keepdims=True)) if a.shape[-1] else a.sum(-1, keepdims=True)


def forward(norm, arrays):
    """The truth of the only output."""
    p = Parts(norm, arrays)
    out = norm.out_dtype(arrays)
    k, least, of_gate, lost = K * oracle.unit_roundoff(mx.float32), 0.0, 0.0, 0.0
    early = norm.is_early
    if early:
        k += 3 * oracle.unit_roundoff(out)
        least = 2 * oracle.smallest(out)
        if p.gate is not None:
            of_gate = STEPS * oracle.unit_roundoff(arrays["gate"].dtype)
            lost = overflow(norm.activation, p.gate, arrays["gate"].dtype)
            least += 2 * oracle.smallest(arrays["gate"].dtype)
    y = p.n * p.w
    slack = k * np.abs(y) + least * (1.0 + np.abs(p.w))
    if p.first:
        # An error of one element is one of the root, too.
        of_x = oracle.unit_roundoff(arrays["x"].dtype) if early else 0.0
        d = (K * oracle.unit_roundoff(mx.float32) + of_gate) * p.s_size + of_x * np.abs(p.s)
        d = d + (least + lost) * np.abs(p.x)
        slack = slack + (d + np.abs(p.n) * rms(d)) * p.rstd * np.abs(p.w)
    elif p.gate is not None:
        error = (K * oracle.unit_roundoff(mx.float32) + of_gate) * p.a_size + least + lost
        slack = slack * np.abs(p.a) + (np.abs(y) + least) * error
        y = y * p.a
    elif norm.activation is not None:
        a, a_size = activation(norm.activation, y)
        _, s_size = slope(norm.activation, y)
        steps = STEPS * oracle.unit_roundoff(out) if early else 0.0
        slack = slack * s_size + (K * oracle.unit_roundoff(mx.float32) + steps) * a_size + least
        slack = slack + (overflow(norm.activation, y, out) if early else 0.0)
        y = a
    config = describe(norm, arrays)
    return [oracle.Truth(p.whole(y), p.whole(slack), out, f"{config} norm")]


def gradients(norm, arrays, cotangent):
    """The truth of each array's gradient."""
    p = Parts(norm, arrays)
    g = oracle.exact(cotangent).reshape(p.x.shape)
    g_size = np.abs(g)
    n_size = p.s_size * p.rstd + np.abs(p.n)
    u = p.n * p.w
    of_gate = of_gate_size = 0.0
    if p.gate is not None and not p.first:
        of_gate = g * u * p.slope
        of_gate_size = g_size * n_size * np.abs(p.w) * p.slope_size
        g, g_size = g * p.a, g_size * p.a_size
    elif p.gate is None and norm.activation is not None:
        of, size = slope(norm.activation, u)
        g, g_size = g * of, g_size * (size + np.abs(u))

    def mean(a):
        return a.mean(-1, keepdims=True) if a.shape[-1] else a.sum(-1, keepdims=True)

    wg, wg_size = g * p.w, g_size * np.abs(p.w)
    ds = (wg - p.n * mean(wg * p.n)) * p.rstd
    ds_size = (wg_size + n_size * mean(wg_size * n_size)) * p.rstd
    dx, dx_size = ds, ds_size
    if p.first:
        of_gate, of_gate_size = ds * p.x * p.slope, ds_size * np.abs(p.x) * p.slope_size
        dx, dx_size = ds * p.a, ds_size * p.a_size
    found = {"x": (dx, dx_size), "gate": (of_gate, of_gate_size)}
    rows = tuple(range(p.x.ndim - 2))
    found["weight"] = ((g * p.n).sum(rows), (g_size * n_size).sum(rows))
    config = describe(norm, arrays)
    truths = {}
    for name, a in arrays.items():
        if a is not None:
            value, size = (np.broadcast_to(v, v.shape).reshape(a.shape) for v in found[name])
            slack = K * oracle.unit_roundoff(mx.float32) * size + oracle.smallest(mx.float32)
            truths[name] = oracle.Truth(value, slack, a.dtype, f"{config} gradient of {name}")
    return truths
