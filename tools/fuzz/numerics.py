"""Calls of the ops with random arguments, and checks of their results."""

from dataclasses import dataclass, replace

import mlx.core as mx
import numpy as np

import mlx_norms
from support import linear_case, norm_add_norm
from support.norm_case import DTYPES, OPS, Norm, describe
from support.quantized_case import Product

from . import group_numerics, linear_check, norm_check
from .layouts import laid_out
from .magnitudes import row_values, values_of_rows
from .norm_check import failure

OF_HEADS, OF_TWO = "rms_norm of heads", "rms_norms of heads"
HEADS = (OF_HEADS, OF_TWO)
LINEAR = linear_case.OPS
QUANTIZED = "quantized_matmul"
L2 = "l2_norm"
NORM_ADD_NORM = "norm_add_norm"
GROUP = "group, instance or batch norm"
EPS = (1e-5, 1e-6, 1e-12, 0.5, 0.0)


@dataclass(frozen=True)
class Call:
    """An op with its options, arrays and cotangents; for several norms, each of them.

    Attributes:
        cases: (norm, arrays, cotangents) of each norm that the call computes.
        axis: That of the norm if it is not the last one, where the arrays have it.
    """

    op: str
    cases: list
    axis: int = -1

    def __str__(self):
        if self.op in (*LINEAR, QUANTIZED, NORM_ADD_NORM, GROUP):
            return str(self.cases[0])
        over = "" if self.axis == -1 else f" over axis {self.axis}"
        return f"{self.op}{over}: " + " and ".join(
            describe(n, arrays) for n, arrays, _ in self.cases
        )


def generate(seed, backend):
    rng = np.random.default_rng([seed, 64])
    more = np.random.default_rng([seed, 65])  # of later options: other draws stay
    op = str(rng.choice([*OPS, *OPS, *HEADS, *LINEAR, QUANTIZED]))
    length, rows = size(rng, backend.simulated)
    later = np.random.default_rng([seed, 66])  # likewise
    if later.random() < 0.08:
        return Call(NORM_ADD_NORM, [norm_add_norm_call(later, (*lead(later, rows), length))])
    latest = np.random.default_rng([seed, 67])  # likewise
    if latest.random() < 0.12:
        return Call(GROUP, [group_numerics.generate(latest, rows * length)])
    if latest.random() < 0.1:
        return axis_call(latest, rows, length)
    if op in LINEAR:
        return Call(op, [linear_call(rng, op, rows, length)])
    if op == QUANTIZED:
        return Call(op, [quantized_call(rng, rows, length)])
    if op in HEADS:
        heads = [int(rng.integers(1, 5)) for _ in range(1 + (op == OF_TWO))]
        norm = replace(norm_of(rng, "rms_norm"), clamp=False)
        dtype = DTYPES[rng.integers(3)]
        shared = rng.random() < 0.5
        has = norm.weight_offset != 0 or rng.random() < 0.8
        shapes = [(max(rows // h, 1), h, length) for h in heads]
        return Call(op, [case(rng, norm, s, dtype, has, shared) for s in shapes])
    shape = (*lead(rng, rows), length)
    norm, dtype = norm_of(rng, op), DTYPES[rng.integers(3)]
    if more.random() < 0.12:
        return Call(L2, [case(more, l2_of(more), shape, dtype)])
    if norm.adds and more.random() < 0.15:
        norm = replace(norm, factor=float(more.normal()))
    return Call(op, [case(rng, norm, shape, dtype, more=more)])


def axis_call(rng, rows, length):
    """A norm over an axis that is not the last one; its arrays are those of rows."""
    shape = (*lead(rng, rows), length)
    shape = (1, *shape) if len(shape) == 1 else shape
    norm = replace(norm_of(rng, str(rng.choice(["rms_norm", "layer_norm"]))), clamp=False)
    of_rows = case(rng, norm, shape, DTYPES[rng.integers(3)])
    return Call(norm.op, [of_rows], axis=int(rng.integers(len(shape) - 1)))


def size(rng, simulated):
    """A row length, mostly short, and a number of rows."""
    most = 4000 if simulated else 8e5 if rng.random() < 0.01 else 1e5
    ranges = [(1, 70), (64, 600), (600, 5000), (5000, 20000), (20000, 100000)]
    if simulated:
        ranges = [(1, 70), (1, 70), (64, 300), (64, 300), (300, 4000)]
    low, high = ranges[int(rng.choice(5, p=[0.6, 0.22, 0.12, 0.04, 0.02]))]
    length = int(rng.integers(low, high + 1))
    if rng.random() < 0.2:  # near the lengths at which a kernel's path changes
        length = min(max((1 << int(np.log2(length))) + int(rng.integers(-1, 2)), 1), high)
    rows = int(rng.choice([1, 2, 3, 5, 8, 16, 17, 64, 300, 513]))
    return length, max(1, min(rows, int(most // length)))


def lead(rng, rows):
    if rng.random() < 0.2 and rows == 1:
        return ()
    for k in (2, 3, 5):
        if rows % k == 0 and rng.random() < 0.4:
            return (k, rows // k)
    return (rows,)


def l2_of(rng):
    dtype = [None, None, *DTYPES][rng.integers(5)]
    return Norm(L2, eps=float(rng.choice(EPS)), dtype=dtype, eps_inside=bool(rng.integers(2)))


def norm_of(rng, op):
    return Norm(
        op,
        eps=float(rng.choice(EPS)),
        weight_offset=float(rng.choice([0.0, 0.0, 1.0, -0.5])),
        clamp=op.startswith("add") and bool(rng.random() < 0.3),
        rounding=[None, "early", "late"][rng.integers(3)],
        dtype=[None, None, *DTYPES][rng.integers(5)],
    )


def case(rng, norm, shape, dtype, has_weight=None, shared=True, more=None):
    """A norm with its arrays and cotangents; ``more`` draws whether it has a scale and others."""
    x = values_of_rows(rng, shape, dtype)
    arrays = {"x": laid_out(rng, x, dtype)}
    if norm.adds:
        other = dtype if rng.random() < 0.6 else DTYPES[rng.integers(3)]
        r = values_of_rows(rng, shape, other)
        if rng.random() < 0.5:
            r = (np.abs(x) * rng.standard_normal(shape)).astype(np.float32)
        arrays["residual"] = laid_out(rng, r, other)
    if norm.l2:
        has_weight = False
    elif has_weight is None:
        has_weight = norm.weight_offset != 0 or rng.random() < 0.8
    if has_weight:
        of = shape[-1:] if shared else shape[-2:]
        arrays["weight"] = laid_out(rng, row_values(rng, of), DTYPES[rng.integers(3)])
    if norm.layer and rng.random() < 0.7:
        arrays["bias"] = laid_out(rng, row_values(rng, shape[-1:]), DTYPES[rng.integers(3)])
    if more and more.random() < 0.3:
        for name in ("scale", "shift", "factor")[: 2 + norm.adds]:
            if more.random() < 0.7 and not (name == "factor" and norm.factor is not None):
                of = tuple(n if more.random() < 0.5 else 1 for n in shape[:-1])
                of = of[int(more.integers(len(of) + 1)) :] + shape[-1:]
                arrays[name] = laid_out(more, row_values(more, of), DTYPES[more.integers(3)])
    dtypes = [norm.out_dtype(arrays)] + ([norm.sum_dtype(arrays)] if norm.adds else [])
    scale = np.float32(10.0 ** rng.uniform(-3, 3) if rng.random() < 0.5 else 1.0)
    cotangents = [
        laid_out(rng, rng.standard_normal(shape, dtype=np.float32) * scale, d) for d in dtypes
    ]
    return norm, arrays, cotangents


def linear_call(rng, op, rows, length):
    """A norm and up to three projections of one kind."""
    dtype = DTYPES[rng.integers(3)]
    bits = [None, 4, 8][rng.integers(3)]
    length, rows = min(length, 2000), min(rows, 16)
    if bits:
        length = max(length // 64, 1) * 64
    norm, arrays, _ = case(rng, Norm(op.removesuffix("_linear")), (rows, length), dtype)
    arrays = {n if n == "x" else f"norm_{n}": a for n, a in arrays.items()}
    if rng.random() < 0.4:
        arrays["residual"] = laid_out(rng, values_of_rows(rng, (rows, length), dtype), dtype)
    names = [n for n in ("x", "residual", "norm_weight", "norm_bias") if n in arrays]
    gated = rng.random() < 0.2
    widths = [int(rng.integers(1, 20)) for _ in range(int(rng.integers(1, 4)))]
    if gated:
        widths = [widths[0]] * 2
    group = int(rng.choice([32, 64]))
    weights, biases = [], []
    for width in widths:
        w = mx.array(rng.standard_normal((width, length), dtype=np.float32)).astype(dtype)
        if bits:
            w = linear_case.Quantized(list(mx.quantize(w, group, bits, stream=mx.cpu)), bits, group)
        weights.append(w)
        bias = mx.array(rng.standard_normal(width, dtype=np.float32)).astype(dtype)
        biases.append(bias if rng.random() < 0.4 else None)
    options = dict(eps=float(rng.choice(EPS[:4])))
    if gated:
        options["gated"] = True
    return linear_case.Case(op, {n: arrays[n] for n in names}, weights, biases, options)


def norm_add_norm_call(rng, shape):
    """Two norms with a sum between them, of values of any dtypes and about any size."""
    arrays = {}
    for name in norm_add_norm.NAMES:
        weight = "weight" in name
        values = rng.standard_normal(shape[-1:] if weight else shape, dtype=np.float32)
        if not weight:
            values *= np.float32(10.0 ** rng.uniform(-2, 2))
        arrays[name] = laid_out(rng, values, DTYPES[rng.integers(3)])
    factor = [None, None, -0.7][rng.integers(3)]
    if factor is None and rng.random() < 0.5:
        row = shape[-1:] if rng.random() < 0.5 else shape
        values = rng.standard_normal(row, dtype=np.float32)
        arrays["factor"] = laid_out(rng, values, DTYPES[rng.integers(3)])
    return norm_add_norm.Case(
        arrays,
        factor=factor,
        eps=float(rng.choice(EPS[:4])),
        weight_offset=float(rng.choice([0.0, 1.0])),
        clamp=bool(rng.integers(2)),
        rounding=[None, "early", "late"][rng.integers(3)],
        dtype=[None, *DTYPES][rng.integers(4)],
    )


def quantized_call(rng, rows, length):
    """A product, of few rows mostly, and of a residual at times."""
    dtype = DTYPES[rng.integers(3)]
    bits, group = int(rng.choice([4, 8])), int(rng.choice([32, 64, 128]))
    length, rows = max(min(length, 4000) // group, 1) * group, min(rows, 20)
    lines = int(rng.integers(1, 80))
    w = mx.array(rng.standard_normal((lines, length), dtype=np.float32)).astype(dtype)
    weight = linear_case.Quantized(list(mx.quantize(w, group, bits, stream=mx.cpu)), bits, group)
    arrays = []
    for width in (length, lines)[: 1 + (rng.random() < 0.5)]:
        values = rng.standard_normal((rows, width), dtype=np.float32)
        arrays.append(laid_out(rng, values * np.float32(10.0 ** rng.uniform(-2, 2)), dtype))
    return Product(arrays[0], weight, *arrays[1:])


def check(call, backend):
    """Failures as sentences; None if MLX cannot compute a product."""
    with np.errstate(all="ignore"):
        if call.op == QUANTIZED:
            return product_failures(call.cases[0], backend)
        if call.op == NORM_ADD_NORM:
            return norm_add_norm_failures(call.cases[0]) + backend.faults()
        if call.op == GROUP:
            return group_numerics.failures(call.cases[0]) + backend.faults()
        if call.op in LINEAR:
            return linear_check.check(call.cases[0], backend)
        if call.op == OF_TWO:
            outputs = outputs_of_two(call.cases)
        elif call.axis != -1:
            outputs = [axis_outputs(call)]
        else:
            norm, arrays, cotangents = call.cases[0]
            outputs = [norm.vjp(arrays, cotangents)]
        failures = []
        for (norm, arrays, cotangents), (values, gradients) in zip(
            call.cases, outputs, strict=True
        ):
            failures += norm_check.check(norm, arrays, cotangents, values, gradients)
    return failures + backend.faults()


def product_failures(product, backend):
    y = linear_check.evaluated(product, product.stock)
    if y is None:
        return None
    return failure(product.truth(backend.name), y) + backend.faults()


def norm_add_norm_failures(case):
    try:
        case.check()
    except AssertionError as wrong:
        return [str(wrong)]
    return []


def axis_outputs(call):
    """The values and gradients of a norm over another axis, as of rows."""
    norm, arrays, cotangents = call.cases[0]
    options = {n: v for n, v in norm.options.items() if n != "clamp"}
    names = list(arrays)

    def of_rows(*values):
        given = dict(zip(names, values, strict=True))
        given["x"] = mx.moveaxis(given["x"], -1, call.axis)
        y = getattr(mlx_norms, call.op)(**given, **options, axis=call.axis)
        return [mx.moveaxis(y, call.axis, -1)]

    return mx.vjp(of_rows, list(arrays.values()), cotangents)


def outputs_of_two(cases):
    """The values and gradients of both norms, from one call."""
    (norm, q, q_cots), (_, k, k_cots) = cases
    taken = ("eps", "weight_offset", "rounding", "dtype")
    options = {n: v for n, v in norm.options.items() if n in taken}
    flat = [*q.values(), *k.values()]

    def both(*flat):
        q_w, k_w = flat[1 : len(q)], flat[len(q) + 1 :]
        weights = q_w[0] if q_w else None, k_w[0] if k_w else None
        return mlx_norms.rms_norms([flat[0], flat[len(q)]], weights, **options)

    values, gradients = mx.vjp(both, flat, [*q_cots, *k_cots])
    return [(values[:1], gradients[: len(q)]), (values[1:], gradients[len(q) :])]
