"""The norms of rows that selftest checks, with their values in float64."""

from __future__ import annotations

from dataclasses import dataclass

import mlx.core as mx

import mlx_norms

EPS = 1e-5
_HEADS = 4
# A row length for each path of a kernel: rows that share a SIMD-group, of a part of a vector, of
# fewer vectors than their lanes have, and of as many; one SIMD-group with 2 to 6 vectors per
# thread, several SIMD-groups with 1 to 4, and rows that do not fit into registers.
_LENGTHS = (33, 100, 128, 256, 512, 768, 2048, 4096, 4097, 8192, 20000)


@dataclass(frozen=True)
class Op:
    """An op with one or two outputs, as a function of the arrays that ``inputs`` names."""

    name: str
    inputs: tuple[str, ...]
    center: bool = False
    weight_offset: float = 0.0
    strided: bool = False  # whether x is part of a larger array
    mixed: bool = False  # whether the weight has another dtype than x
    eps_inside: bool = False
    activation: str | None = None
    norm_before_gate: bool = True
    channels: bool = False  # whether the rows are columns, of axis 1

    sizes = _LENGTHS

    @property
    def label(self) -> str:
        parts = [self.name, "weight_offset" * bool(self.weight_offset)]
        parts += ["strided x" * self.strided, "weight of another dtype" * self.mixed]
        parts += ["eps inside" * self.eps_inside, "factor" * ("factor" in self.inputs)]
        parts += ["scale and shift" * self.modulates, self.activation or ""]
        parts += ["gate" * ("gate" in self.inputs), "before the norm" * (not self.norm_before_gate)]
        parts += ["axis 1" * self.channels]
        return ", ".join(part for part in parts if part)

    @staticmethod
    def where(size: int) -> str:
        return f"rows of {size}"

    @property
    def adds(self) -> bool:
        return "residual" in self.inputs

    def __call__(self, *arrays: mx.array) -> list[mx.array]:
        if self.name == "qk_norm":
            q, k, q_weight, k_weight = arrays
            return list(mlx_norms.qk_norm(q, k, q_weight, k_weight, EPS))
        if self.name == "rms_norms":
            x, other, weight = arrays
            return mlx_norms.rms_norms([x, other, weight], [weight, None, None], EPS)
        options = {"weight_offset": self.weight_offset} if self.weight_offset else {}
        options |= {"eps_inside": True} if self.eps_inside else {}
        options |= {"activation": self.activation} if self.activation else {}
        options |= {} if self.norm_before_gate else {"norm_before_gate": False}
        named = dict(zip(self.inputs, arrays, strict=True))
        options |= {n: named.pop(n) for n in ("factor", "scale", "shift", "gate") if n in named}
        if self.channels:
            options["axis"] = 1
            named["x"] = mx.contiguous(mx.swapaxes(named["x"], 1, -1))
        outputs = getattr(mlx_norms, self.name)(*named.values(), eps=EPS, **options)
        if self.channels:
            return [mx.swapaxes(outputs, 1, -1)]
        return list(outputs) if self.adds else [outputs]

    @property
    def modulates(self) -> bool:
        return "scale" in self.inputs

    def exact(self, *arrays: mx.array) -> list[tuple[mx.array, mx.array]]:
        """Each output in float64, and the magnitude that its rounding errors scale with."""
        if self.name == "qk_norm":
            q, k, q_weight, k_weight = arrays
            return [self.norm(q, q_weight), self.norm(k, k_weight)]
        x, *rest = arrays
        if self.name == "rms_norms":
            return [self.norm(x, rest[1]), *map(self.norm, rest)]
        if self.name == "l2_norm":
            squares = mx.sum(exact_of(x) ** 2, axis=-1, keepdims=True)
            y = exact_of(x) * mx.rsqrt(squares + EPS if self.eps_inside else squares)
            return [(y, mx.abs(y))]
        named = dict(zip(self.inputs[1:], rest, strict=True))
        if "post_weight" in named:
            n, size = self.norm(x, named["post_weight"])
            # As the kernel rounds it, or up to an ulp from that.
            n = n.astype(x.dtype)
            if "factor" in named:
                n, size = n * named["factor"], size * mx.abs(exact_of(named["factor"]))
            total = named["residual"] + n
            y, y_size = self.norm(total, named["weight"])
            total = exact_of(total)
            apart = mx.abs(total) + 2 * size
            root = mx.rsqrt(mx.mean(total * total, axis=-1, keepdims=True) + EPS)
            weight = mx.abs(exact_of(named["weight"]) + self.weight_offset)
            return [(y, 2 * y_size + root * weight * apart), (total, apart)]
        if self.activation:
            return [self._gated(x, **named)]
        factor, scale, shift = (named.pop(n, None) for n in ("factor", "scale", "shift"))
        sums = []
        if self.adds:
            residual = named.pop("residual")
            x = x if factor is None else factor * x
            x = x + residual  # statistics are taken of the rounded sum
            sums = [(exact_of(x), mx.abs(exact_of(x)))]
        y, size = self.norm(x, *named.values())
        if self.modulates:
            scale, shift = 1 + exact_of(scale), exact_of(shift)
            y = y * scale + shift
            size = 3 * ((size + 1) * mx.abs(scale) + mx.abs(shift))  # each of the steps rounds
        return [(y, size), *sums]

    def _gated(self, x, weight, gate=None):
        """Of a gate or an activation, whose steps round, too."""
        x, weight = exact_of(x), exact_of(weight)
        a = size = 1.0
        if gate is not None:
            a, size = activated(self.activation, exact_of(gate))
        first = not self.norm_before_gate
        s = x * a if first else x
        factor = mx.rsqrt(mx.mean(s * s, axis=-1, keepdims=True) + EPS) * weight
        if gate is None:
            y, size = activated(self.activation, s * factor)
            return y, 4 * size
        return (s if first else x * a) * factor, 4 * mx.abs(x * factor) * size

    def values(self, name: str, dtype: mx.Dtype, length: int, seed: int) -> mx.array:
        """Random ones for an input of this name."""
        # Enough short rows that the parameters' gradients are sums of several partial ones.
        rows = (40 if length <= 512 else 3, _HEADS)
        shapes = {name: (rows[0], 1, length) for name in ("factor", "scale", "shift")}
        shapes |= {name: (length,) for name in ("weight", "post_weight")}
        shapes |= {"bias": (length,)}
        shapes |= {name: (_HEADS, length) for name in ("head_weight", "head_bias")}
        if self.mixed and name == "weight":
            dtype = mx.float16 if dtype == mx.float32 else mx.float32
        shape = shapes.get(name, (*rows, length + int(self.strided)))
        values = mx.random.normal(shape, key=mx.random.key(seed))
        values = (values + 0.5).astype(dtype)
        mx.eval(values)
        return values[..., int(self.strided) :] if name == "x" else values

    def cotangents(self, outputs: list[mx.array], length: int) -> list[mx.array]:
        return [self.values("x", o.dtype, length, 50 + i) for i, o in enumerate(outputs)]

    def norm(self, x, weight=None, bias=None):
        x = exact_of(x)
        weight = mx.ones(1, mx.float64) if weight is None else exact_of(weight) + self.weight_offset
        d = x - mx.mean(x, axis=-1, keepdims=True) if self.center else x
        scaled = d * mx.rsqrt(mx.mean(d * d, axis=-1, keepdims=True) + EPS) * weight
        if bias is None:
            return scaled, mx.abs(scaled)
        bias = exact_of(bias)
        return scaled + bias, mx.abs(scaled) + mx.abs(weight) + mx.abs(bias)


OPS = (
    Op("rms_norm", ("x", "weight")),
    Op("layer_norm", ("x", "weight", "bias"), center=True),
    Op("add_rms_norm", ("x", "residual", "weight")),
    Op("add_layer_norm", ("x", "residual", "weight", "bias"), center=True),
    Op("rms_norm", ("x", "weight"), weight_offset=1.0),
    Op("rms_norm", ("x", "weight"), mixed=True),
    Op("layer_norm", ("x", "weight", "bias"), center=True, strided=True),
    Op("head_rms_norm", ("x", "head_weight")),
    Op("head_layer_norm", ("x", "head_weight", "head_bias"), center=True),
    Op("qk_norm", ("x", "x", "head_weight", "weight")),
    Op("rms_norms", ("x", "residual", "weight")),
    Op("layer_norm", ("x", "scale", "shift"), center=True),
    Op("rms_norm", ("x", "weight", "scale", "shift")),
    Op("add_layer_norm", ("x", "residual", "factor", "scale", "shift"), center=True),
    Op("add_rms_norm", ("x", "residual", "weight", "factor")),
    Op("norm_add_norm", ("x", "residual", "post_weight", "weight")),
    Op("norm_add_norm", ("x", "residual", "post_weight", "weight"), weight_offset=1.0),
    Op("norm_add_norm", ("x", "residual", "post_weight", "weight", "factor")),
    Op("rms_norm", ("x", "weight", "gate"), activation="silu"),
    Op("rms_norm", ("x", "weight", "gate"), activation="sigmoid", norm_before_gate=False),
    Op("rms_norm", ("x", "weight"), activation="gelu"),
    Op("rms_norm", ("x", "weight", "gate"), activation="relu2", norm_before_gate=False),
    Op("rms_norm", ("x", "weight"), channels=True),
    Op("layer_norm", ("x", "weight", "bias"), center=True, channels=True),
    Op("l2_norm", ("x",)),
    Op("l2_norm", ("x",), eps_inside=True),
)


def exact_of(a: mx.array) -> mx.array:
    return a.astype(mx.float64)


def activated(activation: str, z: mx.array) -> tuple[mx.array, mx.array | float]:
    """The value in float64, and what the errors of its steps scale with."""
    if activation == "gelu":
        return z * (1 + mx.erf(z / mx.array(2.0, mx.float64).sqrt())) / 2, mx.abs(z)
    if activation == "relu2":
        return mx.maximum(z, 0) ** 2, z * z
    s = 1 / (1 + mx.exp(-z))
    return (s, mx.ones_like(s)) if activation == "sigmoid" else (z * s, mx.abs(z))
